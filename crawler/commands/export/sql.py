"""Export to a database: one table, `pages`, to which missing pages are added, so that any export can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from crawler.commands.export.formats import Row, needed, when
from crawler.commands.export.output import SqliteFile, trouble
from crawler.commands.export.rows import COLUMNS, HTML_COLUMN, Selection
from crawler.errors import UsageError
from crawler.terminal import many

TABLE_COLUMNS = COLUMNS | HTML_COLUMN  # always with html: a later export may have it
STATEMENT_ROWS = 500
HAS_CONTENT = " AND (html IS NOT NULL OR file IS NOT NULL)"


class Database:
    """What the two kinds of databases share."""

    def __init__(self, wanted: Selection, next_since: str, force: bool) -> None:
        self.wanted, self.next_since, self.force = wanted, next_since, force
        self.pages = 0

    def missing(self, host: str, keys: list[str]) -> list[str]:
        """Return the keys of a host that are not in the table; with --since or --force all of them."""
        if self.force or self.wanted.since:
            return keys
        known = self._known(host)
        return [key for key in keys if key not in known]

    def after(self, place: tuple[str, str]) -> str:
        """Return nothing: a page has one row, which is complete or missing."""
        return ""

    def when_stopped(self) -> str:
        """Return what an export that is stopped now leaves."""
        return f"{many(self.pages, 'page')} written; the same command resumes"

    def _known(self, host: str) -> set[str]:
        raise NotImplementedError


class Sqlite(Database, SqliteFile):
    """An SQLite file, to which later exports add."""

    def __init__(self, out: Path, wanted: Selection, next_since: str, force: bool) -> None:
        Database.__init__(self, wanted, next_since, force)
        SqliteFile.__init__(self, out, "pages", TABLE_COLUMNS, grows=True)

    def _begin(self) -> None:
        super()._begin()
        check_columns({found[1] for found in self._db.execute("PRAGMA table_info(pages)")}, str(self.path))
        self._db.execute("CREATE INDEX IF NOT EXISTS pages_by_host ON pages (host, key)")

    def _known(self, host: str) -> set[str]:
        query = "SELECT key FROM pages WHERE host = ?" + (HAS_CONTENT if self.wanted.html else "")
        with trouble(self.path):
            return {key for (key,) in self._db.execute(query, (host,))}

    def add(self, rows: list[Row]) -> None:
        """Write a batch, in one transaction."""
        super().add(rows)
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
            found = self._sql.inspect(self._engine).get_columns("pages")
        check_columns({column["name"] for column in found}, address)

    def _define(self) -> Any:
        """Return the table; by default MySQL would truncate pages at 64 KB and reject emoji."""
        sql = self._sql
        long = needed("sqlalchemy.dialects.mysql", "sql").LONGTEXT()
        kinds = {"text": sql.Text(), "int": sql.BigInteger(), "time": sql.DateTime(), "key": sql.String(24)}
        types = {name: kinds[kind] for name, kind in TABLE_COLUMNS.items()}
        types |= {"host": sql.String(255), "html": sql.Text().with_variant(long, "mysql", "mariadb")}
        return sql.Table(
            "pages",
            sql.MetaData(),
            *(sql.Column(name, types[name], primary_key=name == "key", index=name == "host") for name in TABLE_COLUMNS),
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
        )

    def _known(self, host: str) -> set[str]:
        columns = self._table.c
        query = self._sql.select(columns.key).where(columns.host == host)
        if self.wanted.html:
            query = query.where(self._sql.or_(columns.html.is_not(None), columns.file.is_not(None)))
        with self._trouble(), self._engine.connect() as connection:
            return set(connection.scalars(query))

    def add(self, rows: list[Row]) -> None:
        """Write a batch, in one transaction; delete and insert work with every database."""
        with self._trouble(), self._engine.begin() as connection:
            for start in range(0, len(rows), STATEMENT_ROWS):
                part = [_filled(found) for found in rows[start : start + STATEMENT_ROWS]]
                connection.execute(self._table.delete().where(self._table.c.key.in_([item["key"] for item in part])))
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


def check_columns(found: set[str], where: str) -> None:
    """Raise an error for a table that is not ours."""
    if not set(TABLE_COLUMNS) <= found:
        missing = ", ".join(name for name in TABLE_COLUMNS if name not in found)
        raise UsageError(f"{where} has another table `pages`, without {missing}; choose another database")


def _filled(found: Row) -> Row:
    return {name: found.get(name) for name in TABLE_COLUMNS}


def _naive(found: Row) -> Any:
    """Return the time as UTC without a zone: not every database stores zones."""
    time = when(found["fetched"])
    return time and time.replace(tzinfo=None)
