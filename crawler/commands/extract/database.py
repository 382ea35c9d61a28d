"""Extract into a table of a database: a new one, or one that somebody has; the same rows twice are there once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from crawler.commands.export.formats import Columns, Row, needed, plain
from crawler.commands.export.sql import STATEMENT_ROWS, database_trouble
from crawler.commands.extract.harvest import Tally
from crawler.commands.extract.rules import URL
from crawler.errors import UsageError
from crawler.web.urls import MAX_URL

CHECK_FAILED = (3819, 4025)  # of MySQL and MariaDB, whose driver takes them for trouble of the server
KEY_LENGTH = 255  # characters of a text that is part of the key of a new table: what every database can index

_UNNAMEABLE = re.compile("[`\\x00-\\x1f\\x7f-\\x9f\\U00010000-\\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Target:
    """Which table of which database, and how our columns are named there."""

    address: str = ""
    table: str = "rows"
    key: tuple[str, ...] = ()  # columns of the table by which a row is found again; without any, the page's URL
    names: Mapping[str, str] = field(default_factory=dict)  # by our name


class DatabaseTable:
    """Takes rows. With a key, a row that is there is updated; without, a page's rows replace those it had.

    Two commands that write to one table at the same time may insert the same key twice, unless the table forbids it.
    """

    def __init__(self, target: Target, columns: Columns, tally: Tally) -> None:
        self.target, self.columns, self.tally = target, columns, tally
        self._sql = needed("sqlalchemy", "sql")
        with self._trouble():
            self._engine = self._sql.create_engine(target.address)
        try:
            with self._trouble():
                self._table, is_new = self._open()
            self._names = self._named(is_new)
            self._key = self._checked_key()
        except BaseException:
            self._engine.dispose()
            raise
        self._last_url = ""
        self._rejected = ""

    def add(self, rows: list[Row]) -> None:
        """Write a batch, in one transaction; rows that the database does not take are counted."""
        for start in range(0, len(rows), STATEMENT_ROWS):
            part = list(self._fitting(rows[start : start + STATEMENT_ROWS]))
            with self._trouble():
                try:
                    with self._engine.begin() as connection:
                        self._write(connection, part)
                except self._sql.exc.DBAPIError as error:
                    if not self._is_about_a_row(error):
                        raise
                    self._write_one_by_one(part)
            self._last_url = part[-1][0] if part else self._last_url

    def finish(self) -> None:
        """Raise an error if the database took none of the rows: then it is not the pages' fault."""
        if self._rejected and not self.tally.rows:
            raise UsageError(
                f"{self.target.address} took none of the rows for {self.target.table} ({self._rejected}); "
                "check the table's columns, --map and --key"
            )

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    # ---- the table

    def _open(self) -> tuple[Any, bool]:
        """Return the table, and whether it is new."""
        schema, _, name = self.target.table.rpartition(".")
        metadata = self._sql.MetaData()
        if self._sql.inspect(self._engine).has_table(name, schema=schema or None):
            return self._sql.Table(name, metadata, schema=schema or None, autoload_with=self._engine), False
        columns = [self._new_column(ours, kind) for ours, kind in self.columns.items()]
        charset = {"mysql_charset": "utf8mb4", "mariadb_charset": "utf8mb4"}
        table = self._sql.Table(name, metadata, *columns, schema=schema or None, **charset)
        if self.target.key and set(self.target.key) <= set(table.c.keys()):
            table.append_constraint(self._sql.UniqueConstraint(*self.target.key))
        metadata.create_all(self._engine)
        return table, True

    def _new_column(self, ours: str, kind: str) -> Any:
        """Return a column; by default MySQL would truncate texts at 64 KB, and compare URLs without case."""
        sql, mysql = self._sql, needed("sqlalchemy.dialects.mysql", "sql")
        name = self._theirs(ours)
        if ours == URL:
            ascii = mysql.VARCHAR(MAX_URL, charset="ascii", collation="ascii_bin")
            return sql.Column(name, sql.String(MAX_URL).with_variant(ascii, "mysql", "mariadb"), index=True)
        types = {"int": sql.BigInteger(), "float": sql.Double(), "bool": sql.Boolean()}
        text = sql.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
        if name in self.target.key and kind not in types:
            text = sql.String(KEY_LENGTH)
        return sql.Column(name, types.get(kind, text))

    def _theirs(self, ours: str) -> str:
        """Return the name of a column in the table; a page's header may have letters that MySQL cannot name."""
        return self.target.names.get(ours) or _UNNAMEABLE.sub("?", ours)

    def _named(self, is_new: bool) -> dict[str, Any]:
        """Return the table's column for each of ours; an existing table need not have one for the URL."""
        found = {}
        for ours in self.columns:
            theirs = self._theirs(ours)
            if theirs in self._table.c:
                found[ours] = self._table.c[theirs]
            elif ours != URL or ours in self.target.names:
                raise UsageError(
                    f"the table {self.target.table} has no column {theirs}, it has {', '.join(self._table.c.keys())}; "
                    f"rename it in the rules, or use --map {ours}=NAME"
                )
        if (
            not self.target.key
            and not is_new
            and {column.name for column in found.values()} != set(self._table.c.keys())
        ):
            raise UsageError(
                f"the table {self.target.table} has other columns than the rules, so it is somebody else's; "
                "say with --key COLUMN what tells its rows apart, so that none is written twice"
            )
        return found

    def _checked_key(self) -> list[Any]:
        """Return the columns of the key."""
        ours = {column.name: column for column in self._names.values()}
        for name in self.target.key:
            if name not in ours:
                raise UsageError(f"--key {name} is not a column that is written; those are {', '.join(ours)}")
        if not self.target.key and URL not in self._names:
            raise UsageError("without `url` a database needs --key COLUMN, so that no row is written twice")
        return [ours[name] for name in self.target.key]

    # ---- rows

    def _fitting(self, rows: list[Row]) -> Iterator[tuple[str, dict[Any, Any]]]:
        """Return the URL and the values of each row that the table can hold."""
        for row in rows:
            values = {column: _fitted(row.get(ours), column.type, self._sql) for ours, column in self._names.items()}
            if why := self._why_not(values):
                self.tally.count_rejected(why, str(row.get(URL)))
            else:
                yield str(row.get(URL)), values

    def _why_not(self, values: dict[Any, Any]) -> str:
        for column, value in values.items():
            if column in self._key and value is None:
                return f"without {column.name}"
            if isinstance(value, str) and len(value) > (getattr(column.type, "length", None) or len(value)):
                return f"too long for {column.name}"
        return ""

    def _write(self, connection: Any, part: list[tuple[str, dict[Any, Any]]]) -> None:
        if self._key:
            for _, values in part:
                self._update_or_insert(connection, values)
        elif part:
            column = self._names[URL]
            old = {url for url, _ in part if url != self._last_url}
            connection.execute(self._table.delete().where(column.in_(old)))
            connection.execute(self._table.insert(), [_by_name(values) for _, values in part])

    def _update_or_insert(self, connection: Any, values: dict[Any, Any]) -> None:
        """Leave it to the database which texts are equal: its collation decides."""
        same = self._sql.and_(*(column == values[column] for column in self._key))
        others = {column.name: value for column, value in values.items() if column not in self._key}
        if others:
            is_there = connection.execute(self._table.update().where(same).values(others)).rowcount > 0
        else:
            is_there = connection.execute(self._sql.select(self._key[0]).where(same).limit(1)).first() is not None
        if not is_there:
            connection.execute(self._table.insert(), [_by_name(values)])

    def _is_about_a_row(self, error: Any) -> bool:
        """Return whether a database rejects a row, and not everything we may send."""
        code = next(iter(getattr(error.orig, "args", ())), None)
        return isinstance(error, self._sql.exc.DataError | self._sql.exc.IntegrityError) or code in CHECK_FAILED

    def _write_one_by_one(self, part: list[tuple[str, dict[Any, Any]]]) -> None:
        """Write what the database takes of a batch, in one transaction."""
        with self._engine.begin() as connection:
            if not self._key and part:
                old = {url for url, _ in part if url != self._last_url}
                connection.execute(self._table.delete().where(self._names[URL].in_(old)))
            for url, values in part:
                try:
                    with connection.begin_nested():
                        if self._key:
                            self._update_or_insert(connection, values)
                        else:
                            connection.execute(self._table.insert(), [_by_name(values)])
                except self._sql.exc.DBAPIError as error:
                    if not self._is_about_a_row(error):
                        raise
                    self._rejected = str(getattr(error, "orig", None) or error).partition("\n")[0]
                    self.tally.count_rejected("that the database rejects", f"{self._rejected} at {url}")

    def _trouble(self) -> AbstractContextManager[None]:
        return database_trouble(self._sql, self.target.address, "rows")


def _by_name(values: dict[Any, Any]) -> dict[str, Any]:
    return {column.name: value for column, value in values.items()}


def _fitted(value: Any, type: Any, sql: Any) -> Any:
    """Return a value as the type of a column wants it: texts of times as times, numbers in a text column as texts."""
    if isinstance(value, list):
        value = plain(value)
    if isinstance(value, str):
        try:
            if isinstance(type, sql.DateTime):
                return datetime.fromisoformat(value)
            return date.fromisoformat(value[:10]) if isinstance(type, sql.Date) else value
        except ValueError:
            return value
    if isinstance(type, sql.String) and value is not None:
        return str(plain(value))
    return value
