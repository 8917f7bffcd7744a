//! A journal's file as this crate reads and writes it: every row checked, every error with the file's path.
//!
//! ```text
//! most tables          numbers, body, crc                      crc = crc32c(numbers, body)
//! batches, snapshots   numbers, body, positions, crc, chain    crc = crc32c(numbers, chain, positions, body)
//! ```
//!
//! Never: says what a table is for, or what damage means.

use crate::beside;
use crate::chain::{self, Chain};
use crate::error::{DamagedAt, JournalError};
use crate::turns::WriteTurns;
use rusqlite::config::DbConfig;
use rusqlite::types::ToSql;
use rusqlite::{Connection, OpenFlags, Params, Row, Transaction, TransactionBehavior, params_from_iter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A connection, and the file that its errors name.
#[derive(Debug)]
pub struct Database {
    /// Dropped first.
    pub connection: Connection,
    pub path: PathBuf,
    /// Dropped after it.
    _leaves: Option<EmptyLog>,
}

/// A log that SQLite makes to read a database without one. It goes with the connection, if it is still empty.
#[derive(Debug)]
struct EmptyLog(PathBuf);

impl Drop for EmptyLog {
    fn drop(&mut self) {
        if std::fs::metadata(&self.0).is_ok_and(|log| log.len() == 0) {
            // It says nothing, whether it stays or goes.
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// Why a row is not taken.
#[derive(Debug)]
pub enum RowFault {
    Sqlite(rusqlite::Error),
    Damaged { place: DamagedAt, what: String },
}

impl RowFault {
    pub fn damaged(place: DamagedAt, what: impl Into<String>) -> RowFault {
        RowFault::Damaged { place, what: what.into() }
    }

    pub fn checksum(place: DamagedAt) -> RowFault {
        RowFault::damaged(place, "its checksum does not agree")
    }
}

impl From<rusqlite::Error> for RowFault {
    fn from(error: rusqlite::Error) -> RowFault {
        RowFault::Sqlite(error)
    }
}

impl Database {
    /// Opens the database with every guarantee switched on. Dropped, it leaves its log as it is: whoever knows that the journal's mark does
    /// not ask for the log any more closes it, or calls [`Database::empties_log`] before.
    pub fn open(path: &Path) -> Result<Database, JournalError> {
        Database::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?.guarded()
    }

    /// Makes a database whose pages can be given back one by one.
    pub fn create(path: &Path) -> Result<Database, JournalError> {
        // SQLite gives the log the permissions of the database.
        crate::folder::create_private(path).map_err(|e| JournalError::io(path, e))?;
        let db = Database::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        // Before the first page is written; later it changes nothing.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")?;
        db.guarded()
    }

    /// Opens a database that nobody works on to read it, its write-ahead log included, and changes no byte of either, whatever is found.
    pub fn open_to_check(path: &Path) -> Result<Database, JournalError> {
        // With a log that is to be read SQLite wants the right to write. A copy that lies where nothing can be written has to be closed.
        let writable = std::fs::OpenOptions::new().write(true).open(path).is_ok();
        let log = beside(path, "-wal");
        let has_log = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
        let db = if writable || has_log {
            let leaves = (!log.exists()).then(|| EmptyLog(log));
            Database { _leaves: leaves, ..Database::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)? }
        } else {
            let name =
                format!("file:{}?immutable=1", path.display().to_string().replace('%', "%25").replace('?', "%3f"));
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            Database { path: path.to_owned(), ..Database::connect(Path::new(&name), flags)? }
        };
        db.keep_log(true)?;
        // Exclusive: the index of the log is in memory, and no `-shm` is written.
        db.row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
        db.connection.busy_timeout(Duration::from_millis(200)).map_err(|e| db.sqlite(e))?;
        match db.connection.query_row("PRAGMA schema_version", [], |_| Ok(())) {
            // Another program reads it, and its index is there.
            Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                return Database::open_to_read(path);
            }
            read => read.map_err(|e| db.sqlite(e))?,
        }
        db.execute("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")?;
        Ok(db)
    }

    /// Opens the database for reading only, beside whoever writes it.
    pub fn open_to_read(path: &Path) -> Result<Database, JournalError> {
        let db = Database::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.execute("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON")?;
        Ok(db)
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Database, JournalError> {
        let fail = |e| JournalError::sqlite(path, e);
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fail)?;
        // A reader with the sqlite3 tool may hold it for a moment.
        connection.busy_timeout(Duration::from_secs(10)).map_err(fail)?;
        Ok(Database { connection, path: path.to_owned(), _leaves: None })
    }

    fn guarded(self) -> Result<Database, JournalError> {
        let mode = self.row("PRAGMA journal_mode = WAL", [], |row| Ok(row.get::<_, String>(0)?))?;
        if !mode.is_some_and(|mode| mode.eq_ignore_ascii_case("wal")) {
            let source = std::io::Error::other("the file system cannot hold a write-ahead log");
            return Err(JournalError::io(&self.path, source));
        }
        self.keep_log(true)?;
        self.execute(
            "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;
             PRAGMA journal_size_limit = 67108864;",
        )?;
        Ok(self)
    }

    pub fn sqlite(&self, error: rusqlite::Error) -> JournalError {
        JournalError::sqlite(&self.path, error)
    }

    pub fn damaged(&self, place: DamagedAt, what: impl Into<String>) -> JournalError {
        JournalError::damaged(&self.path, place, what)
    }

    fn fault(&self, fault: RowFault) -> JournalError {
        match fault {
            RowFault::Sqlite(error) => self.sqlite(error),
            RowFault::Damaged { place, what } => self.damaged(place, what),
        }
    }

    /// Runs statements that give no rows.
    pub fn execute(&self, statements: &str) -> Result<(), JournalError> {
        self.connection.execute_batch(statements).map_err(|e| self.sqlite(e))
    }

    /// Hands over the rows of a query one after the other, until `take` breaks off.
    pub fn each(
        &self,
        sql: &str,
        params: impl Params,
        mut take: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>, RowFault>,
    ) -> Result<(), JournalError> {
        let walk = || -> Result<(), RowFault> {
            let mut select = self.connection.prepare_cached(sql)?;
            let mut rows = select.query(params)?;
            while let Some(row) = rows.next()? {
                if take(row)?.is_break() {
                    break;
                }
            }
            Ok(())
        };
        walk().map_err(|fault| self.fault(fault))
    }

    /// The rows of a query.
    pub fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, RowFault>,
    ) -> Result<Vec<T>, JournalError> {
        let mut found = Vec::new();
        self.each(sql, params, |row| {
            found.push(read(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// The first row of a query.
    pub fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, RowFault>,
    ) -> Result<Option<T>, JournalError> {
        let mut found = None;
        self.each(sql, params, |row| {
            found = Some(read(row)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// The one number that a query gives. `None`: it is null.
    pub fn number(&self, sql: &str) -> Result<Option<u64>, JournalError> {
        let number = self.row(sql, [], |row| Ok(row.get::<_, Option<i64>>(0)?))?;
        Ok(number.flatten().map(i64::unsigned_abs))
    }

    /// The least id that is greater than all in a table.
    pub fn next_id(&self, table: &str) -> Result<u64, JournalError> {
        Ok(self.number(&format!("SELECT max(id) FROM {table}"))?.map_or(1, |last| last + 1))
    }

    /// One transaction: all or nothing.
    pub fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, JournalError> {
        let all = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let done = all.and_then(|all| {
            let done = work(&all)?;
            all.commit()?;
            Ok(done)
        });
        done.map_err(|e| self.sqlite(e))
    }

    /// From here on the log goes with the last connection: everything is moved from it to the file then.
    pub fn empties_log(&self) -> Result<(), JournalError> {
        self.keep_log(false)
    }

    /// Whether the log stays as it is when this connection is the last that closes.
    fn keep_log(&self, keep: bool) -> Result<(), JournalError> {
        let set = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep);
        set.map(drop).map_err(|e| self.sqlite(e))
    }

    /// Closes it, which moves everything from the log to the file.
    pub fn close(self) -> Result<(), JournalError> {
        self.empties_log()?;
        let Database { connection, path, .. } = self;
        connection.close().map_err(|(_, e)| JournalError::sqlite(&path, e))
    }
}

/// A database that is written in the background: in small transactions, each in its turn.
///
/// Never: a transaction that a batch would wait long for. Whoever calls keeps each below some 1 MiB.
pub struct Steps<'a> {
    pub db: &'a Database,
    pub turns: &'a WriteTurns,
}

impl Steps<'_> {
    /// One transaction, when it is its turn.
    pub fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, JournalError> {
        let _turn = self.turns.background();
        self.db.write(work)
    }
}

/// Reads a row of numbers, a body and their checksum.
///
/// # Errors
/// SQLite's, or where the checksum does not agree what `damage` makes of the numbers.
pub fn sealed<const N: usize>(
    row: &Row<'_>,
    damage: impl FnOnce([u64; N]) -> RowFault,
) -> Result<([u64; N], Vec<u8>), RowFault> {
    let numbers = numbers::<N>(row)?;
    let body = row.get_ref(N)?.as_bytes().map_err(rusqlite::Error::from)?.to_vec();
    let sound = i64::from(chain::crc(&numbers, &[&body])) == row.get::<_, i64>(N + 1)?;
    let numbers = numbers.map(i64::unsigned_abs);
    if sound { Ok((numbers, body)) } else { Err(damage(numbers)) }
}

/// Writes a row as [`sealed`] reads it.
pub fn insert_sealed(
    db: &Connection,
    table: &str,
    numbers: &[i64],
    body: &(impl ToSql + AsRef<[u8]>),
) -> rusqlite::Result<()> {
    let crc = chain::crc(numbers, &[body.as_ref()]);
    insert(db, &format!("INSERT INTO {table}"), numbers, &[body, &crc])
}

/// A row of `batches` or `snapshots`.
#[derive(Debug)]
pub struct ChainedRow<const N: usize> {
    pub numbers: [u64; N],
    pub body: Vec<u8>,
    pub positions: Vec<u8>,
    pub chain: Chain,
    /// Its checksum agrees.
    pub sound: bool,
}

impl<const N: usize> ChainedRow<N> {
    pub fn read(row: &Row<'_>) -> rusqlite::Result<ChainedRow<N>> {
        let numbers = numbers::<N>(row)?;
        let (body, positions): (Vec<u8>, Vec<u8>) = (row.get(N)?, row.get(N + 1)?);
        let (crc, link): (i64, Vec<u8>) = (row.get(N + 2)?, row.get(N + 3)?);
        let agrees = i64::from(chain::crc(&numbers, &[&link, &positions, &body])) == crc;
        let sound = agrees && link.len() == 32 && numbers.iter().all(|n| *n >= 0);
        let chain = link.try_into().unwrap_or_default();
        Ok(ChainedRow { numbers: numbers.map(i64::unsigned_abs), body, positions, chain, sound })
    }

    /// Writes it by `into`: the beginning of a statement.
    pub fn insert(&self, db: &Connection, into: &str) -> rusqlite::Result<()> {
        let numbers = self.numbers.map(signed);
        let crc = chain::crc(&numbers, &[&self.chain, &self.positions, &self.body]);
        insert(db, into, &numbers, &[&self.body, &self.positions, &crc, &self.chain])
    }
}

/// The first columns of a row.
pub fn numbers<const N: usize>(row: &Row<'_>) -> rusqlite::Result<[i64; N]> {
    let mut numbers = [0; N];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = row.get(at)?;
    }
    Ok(numbers)
}

/// Writes a row of numbers and other values.
pub fn insert(db: &Connection, into: &str, numbers: &[i64], others: &[&dyn ToSql]) -> rusqlite::Result<()> {
    let values = numbers.iter().map(|n| n as &dyn ToSql).chain(others.iter().copied());
    let marks = vec!["?"; numbers.len() + others.len()].join(", ");
    db.prepare_cached(&format!("{into} VALUES ({marks})"))?.execute(params_from_iter(values)).map(drop)
}

/// SQLite has no unsigned numbers. Positions and times stay far below the bound.
pub fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
