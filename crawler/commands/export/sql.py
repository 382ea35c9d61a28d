"""A database that is exported to: one table, `pages`, which gets the pages that it lacks, and so goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crawler.commands.export.formats import Row, needed, when
from crawler.commands.export.output import SqliteFile, trouble
from crawler.commands.export.rows import COLUMNS, HTML, Selection
from crawler.errors import UsageError
from crawler.terminal import many

KINDS = COLUMNS | HTML  # there is always room for it: a later export may be asked for it
AT_ONCE = 500  # rows of a statement


class Database:
    """What the two kinds of databases share."""

    def __init__(self, wanted: Selection, mark: str, force: bool) -> None:
        self.wanted, self.mark, self.force = wanted, mark, force
        self.pages = 0

    def lacking(self, host: str, keys: list[str]) -> list[str]:
        """The keys of a host that are not in the table; with a mark, that alone decides, and all are written again."""
        if self.force or self.wanted.since:
            return keys
        known = self._known(host)
        return [key for key in keys if key not in known]

    def left(self) -> str:
        """What an export that is stopped leaves."""
        return f"{many(self.pages, 'page')} were written; the same command goes on"

    def _known(self, host: str) -> set[str]:
        raise NotImplementedError


class Sqlite(Database, SqliteFile):
    """An SQLite file; a new one has its name when it is whole, a later export adds to it."""

    def __init__(self, out: Path, wanted: Selection, mark: str, force: bool) -> None:
        Database.__init__(self, wanted, mark, force)
        SqliteFile.__init__(self, out, "pages", KINDS, grows=True)

    def _begin(self) -> None:
        super()._begin()
        check_columns({found[1] for found in self._db.execute("PRAGMA table_info(pages)")}, str(self.path))
        self._db.execute("CREATE INDEX IF NOT EXISTS pages_by_host ON pages (host, key)")

    def _known(self, host: str) -> set[str]:
        query = "SELECT key FROM pages WHERE host = ?" + (" AND html IS NOT NULL" if self.wanted.html else "")
        with trouble(self.path):
            return {key for (key,) in self._db.execute(query, (host,))}

    def add(self, rows: list[Row]) -> None:
        """Write a batch, whole or not at all."""
        super().add(rows)
        self.pages += len(rows)


class Sql(Database):
    """A database by its address, by way of SQLAlchemy."""

    def __init__(self, address: str, wanted: Selection, mark: str, force: bool) -> None:
        super().__init__(wanted, mark, force)
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
        """The table; without more words, MySQL would cut pages at 64 KB and know no emoji."""
        sql = self._sql
        long = needed("sqlalchemy.dialects.mysql", "sql").LONGTEXT()
        kinds = {"text": sql.Text(), "int": sql.BigInteger(), "time": sql.DateTime(), "key": sql.String(24)}
        types = {name: kinds[kind] for name, kind in KINDS.items()}
        types |= {"host": sql.String(255), "html": sql.Text().with_variant(long, "mysql", "mariadb")}
        return sql.Table(
            "pages",
            sql.MetaData(),
            *(sql.Column(name, types[name], primary_key=name == "key", index=name == "host") for name in KINDS),
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
        )

    def _known(self, host: str) -> set[str]:
        columns = self._table.c
        query = self._sql.select(columns.key).where(columns.host == host)
        if self.wanted.html:
            query = query.where(columns.html.is_not(None))
        with self._trouble(), self._engine.connect() as connection:
            return set(connection.scalars(query))

    def add(self, rows: list[Row]) -> None:
        """Write a batch, whole or not at all: every database knows how to remove and insert."""
        with self._trouble(), self._engine.begin() as connection:
            for start in range(0, len(rows), AT_ONCE):
                part = [_filled(found) for found in rows[start : start + AT_ONCE]]
                connection.execute(self._table.delete().where(self._table.c.key.in_([item["key"] for item in part])))
                connection.execute(self._table.insert(), [{**item, "fetched": _naive(item)} for item in part])
        self.pages += len(rows)

    def finish(self) -> None:
        """All is committed."""

    def close(self) -> None:
        """Let the connections go."""
        self._engine.dispose()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise UsageError(
                f"{self.address} needs the module {error.name}, which is not installed; "
                f"pip install 'folder-crawler[sql]' has those for MySQL and PostgreSQL"
            ) from error
        except (self._sql.exc.SQLAlchemyError, ValueError) as error:
            what = str(getattr(error, "orig", None) or error).partition("\n")[0]
            raise UsageError(
                f"the export cannot be written to {self.address} ({what}); "
                "check the address and the server: the same command goes on"
            ) from error


def check_columns(found: set[str], where: str) -> None:
    """Stop at a table that is somebody else's."""
    if not set(KINDS) <= found:
        missing = ", ".join(name for name in KINDS if name not in found)
        raise UsageError(f"{where} has a table `pages` of another kind, without {missing}; name another database")


def _filled(found: Row) -> Row:
    return {name: found.get(name) for name in KINDS}


def _naive(found: Row) -> Any:
    """UTC without saying so: not every database keeps a zone."""
    time = when(found["fetched"])
    return time and time.replace(tzinfo=None)
