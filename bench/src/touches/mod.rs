//! `made` and `why` as the table of touches grows: both must stay as quick as they were.

mod fill;

use trackway_domain::{Ref, Time};
use trackway_store::Engine;
use trackway_views::{View, made::Made, why::Why};

use crate::{
    Outcome,
    house::House,
    identity::{Numbered, below, id},
    measure::{Samples, calls, grouped, once, ratio, shown},
    place::Places,
    table::{Table, plot, verdict},
};
use fill::History;
use std::time::Duration;

const CALLS: usize = 2_000;
const WARM_UP: usize = 500;
const SMALLEST: u64 = 10_000;
const GROWTH_MAX: f64 = 2.0;
const P99_MAX: Duration = Duration::from_millis(1);

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

/// One question at every size.
#[derive(Debug)]
struct Growth {
    question: &'static str,
    sizes: Vec<(u64, Samples)>,
}

pub fn measure(places: &Places, size: &Size) -> Outcome<()> {
    println!("\n## touches: `made` and `why` as the record grows");
    println!(
        "\n{CALLS} random calls each in one process, on a warm connection, at each size of one growing database: ten \
         touches per run, a note touched by one to three runs, chains of up to four runs, and one note touched by every \
         hundredth run. Target: the slowest size within 2x of the quickest (median), p99 under 1 ms on SQLite."
    );
    for engine in places.engines() {
        let largest = match engine {
            Engine::Sqlite => size.touches,
            Engine::Postgres => size.postgres_touches,
        };
        let house = House::found(places.database(engine, "touches")?)?;
        println!("\n### {}", engine.name());
        let growths = grow(&house, largest)?;
        print(engine, &growths);
    }
    Ok(())
}

fn grow(house: &House, largest: u64) -> Outcome<Vec<Growth>> {
    let mut growths: Vec<Growth> =
        ["made RUN", "why NOTE, by id", "why NOTE, by 8 digits", "why the note of many runs"]
            .map(|question| Growth { question, sizes: Vec::new() })
            .into();
    let mut history = History::begin(house)?;
    let mut filled = Table::new(["touches", "runs", "notes", "added in", "database"]);
    let mut target = SMALLEST;
    while target <= largest {
        let (took, ()) = once(|| history.grow(house, target))?;
        filled.row([
            grouped(count(history.touches())),
            grouped(count(history.runs())),
            grouped(count(history.notes())),
            shown(took),
            format!("{} MB", grouped(count(fill::bytes(house)? / 1_000_000))),
        ]);
        let (runs, notes) = (history.runs(), history.notes());
        let note = |draw| id(Numbered::Note, below(notes, draw));
        let made = ask(house, |draw| Made {
            run: Ref::new(id(Numbered::Run, below(runs, draw)).to_string()),
            kind: None,
            action: None,
            tree: false,
        })?;
        let by_id = ask(house, |draw| Why { thing: note(draw).to_string() })?;
        // By its end, as people type it. Two ids that end alike are an error, so those that do are left out.
        let endings = fill::unique_endings(house, (0..).map(note), WARM_UP + CALLS)?;
        let by_digits = ask(house, |draw| Why { thing: endings[draw].clone() })?;
        let popular = ask(house, |_| Why { thing: history.popular().to_string() })?;
        for (growth, samples) in growths.iter_mut().zip([made, by_id, by_digits, popular]) {
            growth.sizes.push((target, samples));
        }
        target *= 10;
    }
    filled.print();
    Ok(growths)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Asks one question many times, each in a read transaction of its own.
fn ask<V: View>(house: &House, question: impl Fn(usize) -> V) -> Outcome<Samples> {
    let questions: Vec<V> = (0..WARM_UP + CALLS).map(question).collect();
    calls(WARM_UP, CALLS, |number| {
        questions[number].answer(&mut house.core.store().read(house.tenant())?, Time::now())?;
        Ok(())
    })
}

fn print(engine: Engine, growths: &[Growth]) {
    let mut table = Table::new(["question", "touches", "median", "p99", "times the quickest", "met"]);
    for growth in growths {
        let quickest = growth.sizes.iter().map(|(_, samples)| samples.median()).min().unwrap_or_default();
        for (touches, samples) in &growth.sizes {
            let times = ratio(samples.median(), quickest);
            let quick = engine == Engine::Postgres || samples.p99() < P99_MAX;
            table.row([
                growth.question.to_owned(),
                grouped(count(*touches)),
                shown(samples.median()),
                shown(samples.p99()),
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
            .flat_map(|(touches, samples)| {
                let touches = grouped(count(*touches));
                [(format!("{touches} median"), samples.median()), (format!("{touches} p99"), samples.p99())]
            })
            .collect();
        plot(&format!("{}, {}:", growth.question, engine.name()), &bars);
    }
}
