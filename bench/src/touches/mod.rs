//! `made` and `why` as the table of touches grows: both must stay as quick as they were.

mod fill;

use std::time::Duration;

use trackway_domain::Ref;
use trackway_store::Engine;
use trackway_views::{
    View,
    made::Made,
    run::{ShowRun, TreeOfRun},
    why::Why,
};
use uuid::Uuid;

use crate::{
    Outcome,
    bench_env::BenchEnv,
    identity::{Numbered, below, id},
    measure::{Often, Samples, calls_in_turn, grouped, once, ratio, shown},
    place::Places,
    table::{Table, plot, verdict},
};
use fill::History;

pub const HEADING: &str = "## touches: `made` and `why` as the record grows";
const OFTEN: Often = Often { warm_up: 500, count: 2_000 };
/// Where the draws of other notes begin: those asked about by id are warm already.
const OTHER_NOTES: usize = 1_000_000;
const SMALLEST: u64 = 10_000;
const GROWTH_MAX: f64 = 2.0;
const P99_MAX: Duration = Duration::from_millis(1);

/// What is asked, in this order. The targets are for `made` and `why`; a run's page should do as well.
const QUESTIONS: [&str; 7] = [
    "made RUN",
    "made RUN --tree",
    "why NOTE, by id",
    "why NOTE, by 8 digits",
    "why the note of many runs",
    "run show RUN",
    "run tree RUN",
];

/// How far the table of touches grows
#[derive(Debug, clap::Args)]
pub struct Size {
    /// How many touches there are in the end, on SQLite
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    touches: u64,
    /// How many on PostgreSQL
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    postgres_touches: u64,
}

/// A database and what was recorded in it.
#[derive(Debug)]
struct Record {
    env: BenchEnv,
    history: History,
}

impl Record {
    fn begin(places: &Places, engine: Engine, name: &str) -> Outcome<Self> {
        let env = BenchEnv::found(places.database(engine, name)?)?;
        let history = History::begin(&env)?;
        Ok(Self { env, history })
    }

    fn grow(&mut self, touches: u64) -> Outcome<()> {
        self.history.grow(&self.env, touches)
    }

    /// Answers one question, in a read transaction of its own.
    fn answer<V: View>(&self, question: &V) -> Outcome<()> {
        question.answer(&mut self.env.core.store().read(self.env.tenant())?, self.env.core.now())?;
        Ok(())
    }

    fn random_run(&self, draw: usize) -> Uuid {
        id(Numbered::Run, below(self.history.runs(), draw))
    }

    fn random_note(&self, draw: usize) -> Uuid {
        id(Numbered::Note, below(self.history.notes(), draw))
    }
}

/// One question at every size.
#[derive(Debug)]
struct Growth {
    question: &'static str,
    sizes: Vec<Measured>,
}

/// One question at one size, and at the same moment in a database of the smallest size.
#[derive(Debug)]
struct Measured {
    touches: u64,
    samples: Samples,
    smallest: Samples,
}

pub fn measure(places: &Places, size: &Size) -> Outcome<()> {
    println!(
        "\n{} random calls each in one process, on a warm connection, at each size of one growing database: ten \
         touches per run, a note touched by one to three runs, chains of up to four runs, and one note touched by every \
         hundredth run. In turn with each call, the same is asked of a database that stays at {} touches. Target: median \
         within 2x of that one's, p99 under 1 ms on SQLite, which the specification asks of `made` and `why`; a run's page \
         is held to it too.",
        grouped(OFTEN.count),
        grouped(count(SMALLEST))
    );
    for engine in places.engines() {
        let largest = match engine {
            Engine::Sqlite => size.touches,
            Engine::Postgres => size.postgres_touches,
        };
        println!("\n### {}", engine.name());
        let mut smallest = Record::begin(places, engine, "touches-few")?;
        smallest.grow(SMALLEST)?;
        let growths = grow(Record::begin(places, engine, "touches")?, &smallest, largest)?;
        print(engine, &growths);
    }
    Ok(())
}

fn grow(mut record: Record, smallest: &Record, largest: u64) -> Outcome<[Growth; QUESTIONS.len()]> {
    let mut growths = QUESTIONS.map(|question| Growth { question, sizes: Vec::new() });
    let mut filled = Table::new(["touches", "runs", "notes", "added in", "database"]);
    let mut touches = SMALLEST;
    while touches <= largest {
        let (took, ()) = once(|| record.grow(touches))?;
        filled.row([
            grouped(count(record.history.touches())),
            grouped(count(record.history.runs())),
            grouped(count(record.history.notes())),
            shown(took),
            format!("{} MB", grouped(count(fill::bytes(&record.env)? / 1_000_000))),
        ]);
        let measured = [
            ask(&record, smallest, |record, draw| Ok(made(record.random_run(draw), false)))?,
            ask(&record, smallest, |record, draw| Ok(made(record.random_run(draw), true)))?,
            ask(&record, smallest, |record, draw| Ok(Why { thing: record.random_note(draw).to_string() }))?,
            ask(&record, smallest, |record, draw| Ok(Why { thing: unique_ending(record, OTHER_NOTES + draw)? }))?,
            ask(&record, smallest, |record, _| Ok(Why { thing: record.history.popular().to_string() }))?,
            ask(&record, smallest, |record, draw| {
                Ok(ShowRun { run: Ref::new(record.random_run(draw).to_string()), wake: false })
            })?,
            ask(&record, smallest, |record, draw| {
                Ok(TreeOfRun { run: Ref::new(record.random_run(draw).to_string()) })
            })?,
        ];
        for (growth, (samples, smallest)) in growths.iter_mut().zip(measured) {
            growth.sizes.push(Measured { touches, samples, smallest });
        }
        touches *= 10;
    }
    filled.print();
    Ok(growths)
}

fn made(run: Uuid, tree: bool) -> Made {
    Made { run: Ref::new(run.to_string()), kind: None, action: None, tree, limit: None, after: None }
}

/// The end of a note's id as people type it: eight digits, more where another id ends the same.
fn unique_ending(record: &Record, draw: usize) -> Outcome<String> {
    let note = record.random_note(draw);
    let mut forms = record.env.core.store().read(record.env.tenant())?.short_forms(&[note])?;
    forms.remove(&note).ok_or_else(|| "a note without a short form".into())
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Asks one question of both databases, many times in turn.
fn ask<V: View>(
    record: &Record,
    smallest: &Record,
    question: impl Fn(&Record, usize) -> Outcome<V>,
) -> Outcome<(Samples, Samples)> {
    let questions =
        |record| (0..OFTEN.warm_up + OFTEN.count).map(|draw| question(record, draw)).collect::<Outcome<Vec<V>>>();
    let (ours, theirs) = (questions(record)?, questions(smallest)?);
    calls_in_turn(OFTEN, |number| record.answer(&ours[number]), |number| smallest.answer(&theirs[number]))
}

fn print(engine: Engine, growths: &[Growth]) {
    let mut table = Table::new(["question", "touches", "median", "p99", "times 10,000 touches", "met"]);
    for growth in growths {
        for measured in &growth.sizes {
            let times = ratio(measured.samples.median(), measured.smallest.median());
            let quick = engine == Engine::Postgres || measured.samples.p99() < P99_MAX;
            table.row([
                growth.question.to_owned(),
                grouped(count(measured.touches)),
                shown(measured.samples.median()),
                shown(measured.samples.p99()),
                format!("{times:.2}"),
                verdict(times <= GROWTH_MAX && quick),
            ]);
        }
    }
    table.print();
    for growth in growths {
        let bars: Vec<_> = growth
            .sizes
            .iter()
            .flat_map(|measured| {
                let touches = grouped(count(measured.touches));
                [
                    (format!("{touches} median"), measured.samples.median()),
                    (format!("{touches} p99"), measured.samples.p99()),
                ]
            })
            .collect();
        plot(&format!("{}, {}:", growth.question, engine.name()), &bars);
    }
}
