//! Test cases: the results of a try, said one by one or read from a report.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use trackway_domain::{
    Error as Rule, Id, Patch, Ref, Time, field, junit, kind, patch::UNSET, sentence, spawn, text, words::TestcaseStatus,
};
use trackway_store::{
    Writer, params,
    tables::{Registered, Testcase},
};

use crate::{
    action::{About, Action, Done, LongText, Resource},
    context::Context,
    definition::{Definition, Stands, about, resource, save, touched},
    error::Result,
    experiment,
    message::OfRun,
    touched::{CreatedOrUpdated, Touch, did},
};

impl Definition for Testcase {
    type Kind = kind::Testcase;

    fn id(&self) -> Id<kind::Testcase> {
        self.id
    }

    fn path(&self) -> String {
        self.title.clone()
    }

    /// It says when it was first told, and the log the rest.
    fn set_updated(&mut self, _: Time) {}
}

/// Record the result of a test, or change what is given of one
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetTestcase {
    /// The test case (a new one, when left out)
    pub testcase: Option<Ref<kind::Testcase>>,
    /// What is tested; a new one needs it
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub title: Option<String>,
    /// How it went (TODO for a new one, when it is not said)
    #[arg(long)]
    pub status: Option<TestcaseStatus>,
    /// What went wrong
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub error: Patch<String>,
    /// The file it stands in
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::PATH_MAX))]
    pub file: Patch<String>,
    /// The line it stands at
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub line: Patch<i64>,
    /// How long it took, in seconds
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "SECONDS")]
    #[serde(default)]
    pub duration: Patch<f64>,
    /// The experiment it is a result of
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub experiment: Patch<Ref<kind::Experiment>>,
    /// The role it was tested in (the run's, for a new one)
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
}

impl Action for SetTestcase {
    const NAME: &'static str = "set_testcase";
    const COMMAND: (&'static str, &'static str) = ("testcase", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = CreatedOrUpdated<kind::Testcase>;
    type Output = Stands<Testcase>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { testcase, title, status, error, file, line, duration, experiment, role } = self;
        let before = testcase.as_ref().map(|reference| find(write, reference)).transpose()?;
        let title = title.as_deref().map(|title| text::required_line("title", title, text::LINE_MAX)).transpose()?;
        let testcase = match (&before, &title) {
            (Some(before), _) => before.clone(),
            (None, None) => {
                return Err(Rule::usage("a new test case needs a title")
                    .hint(sentence!["give it ", field!(title)])
                    .into());
            }
            (None, Some(_)) => Testcase {
                id: write.new_id(),
                tenant_id: context.tenant,
                title: String::new(),
                status: TestcaseStatus::Todo,
                error: None,
                file: None,
                line: None,
                duration_ms: None,
                experiment_id: None,
                role_id: OfRun::of(context, write)?.role,
                created_at: write.now,
                report_digest: None,
                report_place: None,
            },
        };
        let testcase = Testcase {
            id: testcase.id,
            tenant_id: testcase.tenant_id,
            title: title.unwrap_or(testcase.title),
            status: status.unwrap_or(testcase.status),
            error: error.body("error", text::TEXT_MAX)?.apply(testcase.error),
            file: file.line("file", text::PATH_MAX)?.apply(testcase.file),
            line: line.clone().try_map(positive)?.apply(testcase.line),
            duration_ms: duration.clone().try_map(milliseconds)?.apply(testcase.duration_ms),
            experiment_id: experiment
                .clone()
                .try_map(|reference| experiment::live(write, &reference).map(|experiment| experiment.id))?
                .apply(testcase.experiment_id),
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(testcase.role_id),
            created_at: testcase.created_at,
            report_digest: testcase.report_digest,
            report_place: testcase.report_place,
        };
        let (testcase, saved) = save(context, write, before.as_ref(), testcase)?;
        Ok(touched(testcase, saved))
    }
}

fn positive(line: i64) -> Result<i64> {
    if line < 1 {
        return Err(Rule::usage(format!("lines are counted from 1, not {line}")).into());
    }
    Ok(line)
}

fn milliseconds(seconds: f64) -> Result<i64> {
    if !(0.0..1e12).contains(&seconds) {
        return Err(Rule::usage(format!("{seconds} is not a duration in seconds")).into());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was looked at")]
    Ok((seconds * 1_000.0).round() as i64)
}

/// What a report is known by: its text, and what its results belong to.
fn digest(
    report: &str,
    run: Option<Id<kind::Run>>,
    experiment: Option<Id<kind::Experiment>>,
    role: Option<Id<kind::Role>>,
) -> String {
    let mut digest = Sha256::new_with_prefix(report.as_bytes());
    for place in [run.map(Id::uuid), experiment.map(Id::uuid), role.map(Id::uuid)] {
        digest.update(place.unwrap_or_default().as_bytes());
    }
    spawn::hex(&digest.finalize())
}

fn find(write: &mut Writer<'_>, reference: &Ref<kind::Testcase>) -> Result<Testcase> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<Testcase>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no testcase {reference:?}")))?)
}

/// Record the results in a report of a test runner, all or none
///
/// The same report again, in the same run and for the same experiment and role, adds nothing.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ImportTestcases {
    /// The report, as junit.xml, to 20,000,000 bytes
    #[arg(value_name = "FILE")]
    pub junit: String,
    /// The experiment they are results of
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// The role they were tested in (the run's, when it is not said)
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
}

/// How many results were recorded.
#[derive(Debug, Default, Serialize)]
pub struct ImportedTestcases {
    pub imported: i64,
    pub ok: i64,
    pub ko: i64,
    pub todo: i64,
    /// Whether the report had been recorded before: then nothing was.
    pub duplicate: bool,
}

impl Action for ImportTestcases {
    const NAME: &'static str = "import_testcases";
    const COMMAND: (&'static str, &'static str) = ("testcase", "import");
    const LONG_TEXT: Option<LongText> = Some(LongText::File { field: "junit", bytes_max: junit::REPORT_MAX as u64 });
    type Touched = Touch<kind::Testcase, did::Create>;
    type Output = ImportedTestcases;

    fn put_text(&mut self, text: String) {
        self.junit = text;
    }

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let experiment = self.experiment.as_ref().map(|reference| experiment::live(write, reference)).transpose()?;
        let role_id = match write.resolve_optional(self.role.as_ref())? {
            Some(role) => Some(role),
            None => OfRun::of(context, write)?.role,
        };
        let mut counts = ImportedTestcases::default();
        let cases = junit::cases(&self.junit)?;
        let experiment_id = experiment.as_ref().map(|experiment| experiment.id);
        let digest = digest(&self.junit, context.run, experiment_id, role_id);
        let known = write.one::<(i64,)>(
            "select 1 from testcases where tenant_id = ?1 and report_digest = ?2 limit 1",
            params![digest],
        )?;
        if known.is_some() {
            counts.duplicate = true;
            return Ok(Done::unchanged(counts));
        }
        let mut testcases = Vec::with_capacity(cases.len());
        for (case, place) in cases.into_iter().zip(1..) {
            counts.imported += 1;
            match case.status {
                TestcaseStatus::Ok => counts.ok += 1,
                TestcaseStatus::Ko => counts.ko += 1,
                TestcaseStatus::Todo => counts.todo += 1,
            }
            testcases.push(Testcase {
                id: write.new_id(),
                tenant_id: context.tenant,
                title: case.title,
                status: case.status,
                error: case.error,
                file: case.file,
                line: case.line,
                duration_ms: case.duration_ms,
                experiment_id,
                role_id,
                created_at: write.now,
                report_digest: Some(digest.clone()),
                report_place: Some(place),
            });
        }
        if counts.imported == 0 {
            return Ok(Done::unchanged(counts));
        }
        write.insert_all(&testcases)?;
        let resources: Vec<_> = testcases.iter().map(resource).collect();
        let entries: Vec<_> = resources
            .iter()
            .map(|resource| Registered::new(write, context.actor.id(), resource.id, &resource.path))
            .collect();
        write.insert_all(&entries)?;
        let subject = match &experiment {
            Some(experiment) => about(experiment),
            None => About::from(&Resource::<kind::Tenant>::outside(context.tenant, "test cases")),
        };
        let detail = json!(counts);
        Ok(Done::changed(counts, subject, Touch::many(resources)).with_detail(detail))
    }
}
