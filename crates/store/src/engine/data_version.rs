//! Whether anything was written since: asked of the engine itself, whoever wrote, in this process or in another.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::{
    connection::{Connection, Engine},
    error::Result,
    store::Store,
};

/// A moment in the life of a database. Between two that are equal, nothing was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// SQLite counts for each connection by itself.
    connection: u64,
    at: String,
}

/// The connection that is asked, and what it said last.
#[derive(Debug, Default)]
pub(crate) struct LatestMoment(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    connection: Option<Connection>,
    connections: u64,
    last: Option<(Instant, Moment)>,
}

impl Store {
    /// The same as [`Store::moment`], where reading it takes no round trip: on SQLite. It blocks for no longer than that.
    pub fn local_moment(&self) -> Option<Result<Moment>> {
        (self.engine() == Engine::Sqlite).then(|| self.moment())
    }

    /// The moment now, or a later one: those who come while somebody else asks share what the next one hears.
    pub fn moment(&self) -> Result<Moment> {
        let came = Instant::now();
        let mut latest = self.latest_moment().0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, moment)) = latest.last.as_ref().filter(|(asked, _)| *asked >= came) {
            return Ok(moment.clone());
        }
        let asked = Instant::now();
        // One that fails is not used again.
        let mut connection = match latest.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => {
                latest.connections += 1;
                self.connect()?
            }
        };
        let question = match connection.engine() {
            Engine::Sqlite => "select cast(data_version as text) from pragma_data_version",
            // Which transactions are seen: it changes whenever one that wrote begins or ends.
            Engine::Postgres => "select cast(pg_current_snapshot() as text)",
        };
        let at = connection.query::<(String,)>(question, &[])?.pop().map_or_else(String::new, |(at,)| at);
        let moment = Moment { connection: latest.connections, at };
        latest.connection = Some(connection);
        latest.last = Some((asked, moment.clone()));
        Ok(moment)
    }
}
