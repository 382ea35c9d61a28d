"""Export to a database: a table, to which missing rows are added, so that any export can be resumed.

`pages` has a row for each page; `versions`, which is made with --versions, one for each version, also the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crawler.commands.export.formats import Columns, Row, needed, when
from crawler.commands.export.output import SqliteFile, trouble
from crawler.commands.export.rows import COLUMNS, HTML_COLUMN, Selection
from crawler.errors import UsageError
from crawler.store.records import utc
from crawler.terminal import many

TABLE_COLUMNS = COLUMNS | HTML_COLUMN  # always with html: a later export may have it
VERSION_COLUMNS = TABLE_COLUMNS | {"key": "text", "version": "key"}  # what is unique is key and time
KEY_LENGTHS = {"key": 24, "version": 48}
STATEMENT_ROWS = 500
HAS_CONTENT = " HAVING count(*) = count(coalesce(html, file))"


class Database:
    """What the two kinds of databases share."""

    def __init__(self, wanted: Selection, next_since: str, force: bool) -> None:
        self.wanted, self.next_since, self.force = wanted, next_since, force
        self.table, self.unique = ("versions", "version") if wanted.versions else ("pages", "key")
        self.columns: Columns = VERSION_COLUMNS if wanted.versions else TABLE_COLUMNS
        self.pages = 0
        self._newest: dict[str, str] = {}  # key -> time of the newest version in the table, of the host at hand

    def missing(self, host: str, keys: list[str]) -> list[str]:
        """Return the keys of a host that are not in the table; with --since or --force all of them.

        With --versions also those that are: `after` tells which versions of them are missing.
        """
        if self.force or self.wanted.since:
            return keys
        known = self._known(host)
        if self.wanted.versions:
            self._newest = known
            return keys
        return [key for key in keys if key not in known]

    def after(self, place: tuple[str, str]) -> str:
        """Return up to which version a page is in the table; they are written in order."""
        return self._newest.get(place[1], "")

    def filled(self, found: Row) -> Row:
        """Return a row with a value for each column."""
        return {name: found.get(name) for name in self.columns} | (
            {"version": f"{found['key']} {found['fetched'] or ''}"} if self.wanted.versions else {}
        )

    def when_stopped(self) -> str:
        """Return what an export that is stopped now leaves."""
        return f"{many(self.pages, 'page')} written; the same command resumes"

    def _known(self, host: str) -> dict[str, str]:
        """Return the keys of a host in the table, each with the time of its newest version.

        With --html those that have theirs, in all versions.
        """
        raise NotImplementedError


class Sqlite(Database, SqliteFile):
    """An SQLite file, to which later exports add."""

    def __init__(self, out: Path, wanted: Selection, next_since: str, force: bool) -> None:
        Database.__init__(self, wanted, next_since, force)
        SqliteFile.__init__(self, out, self.table, self.columns, grows=True)

    def _begin(self) -> None:
        super()._begin()
        found = {found[1] for found in self._db.execute(f"PRAGMA table_info({self.table})")}
        check_columns(found, str(self.path), self.table, self.columns)
        self._db.execute(f"CREATE INDEX IF NOT EXISTS {self.table}_by_host ON {self.table} (host, key)")

    def _known(self, host: str) -> dict[str, str]:
        query = f"SELECT key, max(fetched) FROM {self.table} WHERE host = ? GROUP BY key"
        with trouble(self.path):
            found = self._db.execute(query + (HAS_CONTENT if self.wanted.html else ""), (host,))
            return {key: newest or "" for key, newest in found}

    def add(self, rows: list[Row]) -> None:
        """Write a batch, in one transaction."""
        super().add(list(map(self.filled, rows)))
        self.pages += len(rows)


class Sql(Database):
    """A database by its URL, with SQLAlchemy."""

    def __init__(self, address: str, wanted: Selection, next_since: str, force: bool) -> None:
        super().__init__(wanted, next_since, force)
        self.address = address
        self._sql = needed("sqlalchemy", "sql")
        with self._trouble():
            self._engine = self._sql.create_engine(address)
        self._table = self._define()
        with self._trouble():
            self._table.metadata.create_all(self._engine)
            found = self._sql.inspect(self._engine).get_columns(self.table)
        check_columns({column["name"] for column in found}, address, self.table, self.columns)

    def _define(self) -> Any:
        """Return the table; by default MySQL would truncate pages at 64 KB and reject emoji."""
        sql = self._sql
        long = needed("sqlalchemy.dialects.mysql", "sql").LONGTEXT()
        kinds = {"text": sql.Text(), "int": sql.BigInteger(), "time": sql.DateTime()}
        types = {name: kinds[kind] for name, kind in self.columns.items() if kind in kinds}
        types |= {name: sql.String(length) for name, length in KEY_LENGTHS.items() if name in self.columns}
        types |= {"host": sql.String(255), "html": sql.Text().with_variant(long, "mysql", "mariadb")}
        return sql.Table(
            self.table,
            sql.MetaData(),
            *(
                sql.Column(name, types[name], primary_key=name == self.unique, index=name == "host")
                for name in self.columns
            ),
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
        )

    def _known(self, host: str) -> dict[str, str]:
        columns, count = self._table.c, self._sql.func.count
        newest = self._sql.func.max(columns.fetched)
        query = self._sql.select(columns.key, newest).where(columns.host == host).group_by(columns.key)
        if self.wanted.html:
            query = query.having(count() == count(self._sql.func.coalesce(columns.html, columns.file)))
        with self._trouble(), self._engine.connect() as connection:
            return {key: _utc(time) for key, time in connection.execute(query)}

    def add(self, rows: list[Row]) -> None:
        """Write a batch, in one transaction; delete and insert work with every database."""
        with self._trouble(), self._engine.begin() as connection:
            for start in range(0, len(rows), STATEMENT_ROWS):
                part = [self.filled(found) for found in rows[start : start + STATEMENT_ROWS]]
                unique = self._table.c[self.unique]
                connection.execute(self._table.delete().where(unique.in_([item[self.unique] for item in part])))
                connection.execute(self._table.insert(), [{**item, "fetched": _naive(item)} for item in part])
        self.pages += len(rows)

    def finish(self) -> None:
        """Do nothing: each batch is committed."""

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _trouble(self) -> AbstractContextManager[None]:
        return database_trouble(self._sql, self.address, "the export")


@contextmanager
def database_trouble(sql: Any, address: str, what: str) -> Iterator[None]:
    """Turn errors of SQLAlchemy and of its drivers into ours."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{address} needs the module {error.name}, which is not installed; "
            f"for MySQL and PostgreSQL: pip install 'folder-crawler[sql]'"
        ) from error
    except (sql.exc.SQLAlchemyError, ValueError) as error:
        why = str(getattr(error, "orig", None) or error).partition("\n")[0]
        raise UsageError(
            f"{what} cannot be written to {address} ({why}); check the URL and the server; the same command resumes"
        ) from error


def check_columns(found: set[str], where: str, table: str, columns: Columns) -> None:
    """Raise an error for a table that is not ours."""
    if not set(columns) <= found:
        missing = ", ".join(name for name in columns if name not in found)
        raise UsageError(f"{where} has another table `{table}`, without {missing}; choose another database")


def _utc(naive: datetime | None) -> str:
    return utc(naive.replace(tzinfo=UTC).timestamp()) if naive else ""


def _naive(found: Row) -> Any:
    """Return the time as UTC without a zone: not every database stores zones."""
    time = when(found["fetched"])
    return time and time.replace(tzinfo=None)
