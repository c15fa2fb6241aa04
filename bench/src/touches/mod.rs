//! Times `made` and `why` as the touches table grows: their time must not grow with it.

mod fill;

use std::time::Duration;

use trackway_domain::Ref;
use trackway_store::Engine;
use trackway_views::{
    View,
    made::ListMade,
    run::{ShowRun, ShowRunTree},
    why::Why,
};
use uuid::Uuid;

use crate::{
    BenchResult,
    bench_env::BenchEnv,
    bulk_ids::{IdKind, bulk_id, random_below},
    databases::Databases,
    measure::{Repetitions, Samples, format_count, format_duration, ratio, time_calls_alternately, time_once},
    table::{Table, plot, verdict},
};
use fill::History;

pub const HEADING: &str = "## touches: `made` and `why` as the touches table grows";
const REPETITIONS: Repetitions = Repetitions { warm_up: 500, count: 2_000 };
/// First draw for the queries by short id. It selects other notes than the queries by full id, whose notes are already
/// in the caches.
const SHORT_ID_DRAWS: usize = 1_000_000;
const SMALLEST: u64 = 10_000;
const GROWTH_MAX: f64 = 2.0;
const P99_MAX: Duration = Duration::from_millis(1);

/// The measured queries, in this order. The specification has targets for `made` and `why`; the benchmark applies them
/// to the page of a run too.
const QUERIES: [&str; 7] = [
    "made RUN",
    "made RUN --tree",
    "why NOTE, by id",
    "why NOTE, by 8 digits",
    "why the note of many runs",
    "run show RUN",
    "run tree RUN",
];

/// Sizes of the touches table
#[derive(Debug, clap::Args)]
pub struct TouchesOptions {
    /// Number of touches at the end, on SQLite
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    touches: u64,
    /// Number of touches at the end, on PostgreSQL
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    postgres_touches: u64,
}

/// A database and the rows inserted into it.
#[derive(Debug)]
struct TouchDatabase {
    env: BenchEnv,
    history: History,
}

impl TouchDatabase {
    fn begin(databases: &Databases, engine: Engine, name: &str) -> BenchResult<Self> {
        let env = BenchEnv::create(databases.create(engine, name)?)?;
        let history = History::begin(&env)?;
        Ok(Self { env, history })
    }

    fn grow(&mut self, touches: u64) -> BenchResult<()> {
        self.history.grow(&self.env, touches)
    }

    /// Answers one query, in a separate read transaction.
    fn answer<V: View>(&self, query: &V) -> BenchResult<()> {
        query.answer(&mut self.env.core.store().read(self.env.tenant())?, self.env.core.now())?;
        Ok(())
    }

    fn random_run(&self, draw: usize) -> Uuid {
        bulk_id(IdKind::Run, random_below(self.history.runs(), draw))
    }

    fn random_note(&self, draw: usize) -> Uuid {
        bulk_id(IdKind::Note, random_below(self.history.notes(), draw))
    }
}

/// The results of one query at every size.
#[derive(Debug)]
struct QueryResults {
    query: &'static str,
    sizes: Vec<SizeResult>,
}

/// The times of one query at one size, and the times at the smallest size, measured alternately.
#[derive(Debug)]
struct SizeResult {
    touches: u64,
    samples: Samples,
    smallest: Samples,
}

pub fn measure(databases: &Databases, options: &TouchesOptions) -> BenchResult<()> {
    println!(
        "\n{} random calls of each query in one process, on a warm connection, at each size of a growing database: ten \
         touches per run, a note touched by one to three runs, chains of up to four runs, and one note touched by \
         every hundredth run. Each call alternates with the same call on a database that stays at {} touches. Targets: \
         median at most 2x that of the small database; p99 less than 1 ms on SQLite. The specification requires this \
         of `made` and `why`; the benchmark applies it to the page of a run too.",
        format_count(REPETITIONS.count),
        format_count(count(SMALLEST))
    );
    for engine in databases.engines() {
        let largest = match engine {
            Engine::Sqlite => options.touches,
            Engine::Postgres => options.postgres_touches,
        };
        println!("\n### {}", engine.name());
        let mut smallest = TouchDatabase::begin(databases, engine, "touches-few")?;
        smallest.grow(SMALLEST)?;
        let results = grow(TouchDatabase::begin(databases, engine, "touches")?, &smallest, largest)?;
        print(engine, &results);
    }
    Ok(())
}

fn grow(
    mut database: TouchDatabase,
    smallest: &TouchDatabase,
    largest: u64,
) -> BenchResult<[QueryResults; QUERIES.len()]> {
    let mut results = QUERIES.map(|query| QueryResults { query, sizes: Vec::new() });
    let mut filled = Table::new(["touches", "runs", "notes", "added in", "database"]);
    let mut touches = SMALLEST;
    while touches <= largest {
        let (elapsed, ()) = time_once(|| database.grow(touches))?;
        filled.row([
            format_count(count(database.history.touches())),
            format_count(count(database.history.runs())),
            format_count(count(database.history.notes())),
            format_duration(elapsed),
            format!("{} MB", format_count(count(fill::database_bytes(&database.env)? / 1_000_000))),
        ]);
        let measured = [
            time_query(&database, smallest, |database, draw| Ok(made(database.random_run(draw), false)))?,
            time_query(&database, smallest, |database, draw| Ok(made(database.random_run(draw), true)))?,
            time_query(&database, smallest, |database, draw| {
                Ok(Why { thing: database.random_note(draw).to_string() })
            })?,
            time_query(&database, smallest, |database, draw| {
                Ok(Why { thing: short_id(database, SHORT_ID_DRAWS + draw)? })
            })?,
            time_query(&database, smallest, |database, _| {
                Ok(Why { thing: database.history.popular_note().to_string() })
            })?,
            time_query(&database, smallest, |database, draw| {
                Ok(ShowRun { run: Ref::new(database.random_run(draw).to_string()), wake: false })
            })?,
            time_query(&database, smallest, |database, draw| {
                Ok(ShowRunTree { run: Ref::new(database.random_run(draw).to_string()) })
            })?,
        ];
        for (result, (samples, smallest)) in results.iter_mut().zip(measured) {
            result.sizes.push(SizeResult { touches, samples, smallest });
        }
        touches *= 10;
    }
    filled.print();
    Ok(results)
}

fn made(run: Uuid, tree: bool) -> ListMade {
    ListMade { run: Ref::new(run.to_string()), kind: None, action: None, tree, limit: None, after: None }
}

/// A note's short id: eight digits, or more if another id has the same last digits.
fn short_id(database: &TouchDatabase, draw: usize) -> BenchResult<String> {
    let note = database.random_note(draw);
    let mut forms = database.env.core.store().read(database.env.tenant())?.short_ids(&[note])?;
    forms.remove(&note).ok_or_else(|| "a note without a short id".into())
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Times one query on both databases, alternately.
fn time_query<V: View>(
    database: &TouchDatabase,
    smallest: &TouchDatabase,
    query: impl Fn(&TouchDatabase, usize) -> BenchResult<V>,
) -> BenchResult<(Samples, Samples)> {
    let queries = |database| {
        (0..REPETITIONS.warm_up + REPETITIONS.count).map(|draw| query(database, draw)).collect::<BenchResult<Vec<V>>>()
    };
    let (queries_at_size, queries_at_smallest) = (queries(database)?, queries(smallest)?);
    time_calls_alternately(
        REPETITIONS,
        |number| database.answer(&queries_at_size[number]),
        |number| smallest.answer(&queries_at_smallest[number]),
    )
}

fn print(engine: Engine, results: &[QueryResults]) {
    let mut table = Table::new(["query", "touches", "median", "p99", "times 10,000 touches", "met"]);
    for result in results {
        for size in &result.sizes {
            let times = ratio(size.samples.median(), size.smallest.median());
            let is_fast = engine == Engine::Postgres || size.samples.p99() < P99_MAX;
            table.row([
                result.query.to_owned(),
                format_count(count(size.touches)),
                format_duration(size.samples.median()),
                format_duration(size.samples.p99()),
                format!("{times:.2}"),
                verdict(times <= GROWTH_MAX && is_fast),
            ]);
        }
    }
    table.print();
    for result in results {
        let bars: Vec<_> = result
            .sizes
            .iter()
            .flat_map(|size| {
                let touches = format_count(count(size.touches));
                [(format!("{touches} median"), size.samples.median()), (format!("{touches} p99"), size.samples.p99())]
            })
            .collect();
        plot(&format!("{}, {}:", result.query, engine.name()), &bars);
    }
}
