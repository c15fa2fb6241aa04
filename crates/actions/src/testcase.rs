//! Test cases: test results, recorded one by one or imported from a test runner's report.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use trackway_domain::{
    Error as Rule, Id, Patch, Ref, Time, enums::TestcaseStatus, field, junit, kind, patch::UNSET, sentence, spawn, text,
};
use trackway_store::{
    Writer, params,
    tables::{NewRegistryEntry, Testcase},
};

use crate::{
    action::{Action, ActionOutcome, LongText, Resource, Subject},
    context::Context,
    definition::{Definition, UpsertResult, outcome_with_touch, resource, save, subject},
    error::Result,
    experiment,
    message::RunDefaults,
    touched::{CreatedOrUpdated, Touch, action_type},
};

impl Definition for Testcase {
    type Kind = kind::Testcase;

    fn id(&self) -> Id<kind::Testcase> {
        self.id
    }

    fn path(&self) -> String {
        self.title.clone()
    }

    /// Does nothing: a test case has only a creation time. The event log has the times of later changes.
    fn set_updated(&mut self, _: Time) {}
}

/// Create or update a test case
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetTestcase {
    /// Test case to update [default: a new one]
    pub testcase: Option<Ref<kind::Testcase>>,
    /// Title: what is tested (required for a new test case)
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub title: Option<String>,
    /// Result of the test [default for a new test case: TODO]
    #[arg(long)]
    pub status: Option<TestcaseStatus>,
    /// Error message of a failed test
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::TEXT_MAX))]
    pub error: Patch<String>,
    /// File that contains the test
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    #[schemars(length(max = text::PATH_MAX))]
    pub file: Patch<String>,
    /// Line of the test in its file, from 1
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "NUMBER")]
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub line: Patch<i64>,
    /// Duration of the test in seconds
    #[arg(long, default_value = UNSET, hide_default_value = true, value_name = "SECONDS")]
    #[serde(default)]
    pub duration: Patch<f64>,
    /// Experiment that the test belongs to
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub experiment: Patch<Ref<kind::Experiment>>,
    /// Role that the test ran in [default for a new test case: the run's]
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub role: Patch<Ref<kind::Role>>,
}

impl Action for SetTestcase {
    const NAME: &'static str = "set_testcase";
    const COMMAND: (&'static str, &'static str) = ("testcase", "set");
    const ALIAS: Option<&'static str> = Some("create");
    type Touched = CreatedOrUpdated<kind::Testcase>;
    type Output = UpsertResult<Testcase>;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { testcase, title, status, error, file, line, duration, experiment, role } = self;
        let before = testcase.as_ref().map(|reference| find(write, reference)).transpose()?;
        let title =
            title.as_deref().map(|title| text::check_required_line("title", title, text::LINE_MAX)).transpose()?;
        let testcase = match (&before, &title) {
            (Some(before), _) => before.clone(),
            (None, None) => {
                return Err(Rule::usage("a new test case needs a title").hint(sentence!["add ", field!(title)]).into());
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
                role_id: RunDefaults::of(context, write)?.role,
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
                .try_map(|reference| experiment::locked_experiment(write, &reference).map(|experiment| experiment.id))?
                .apply(testcase.experiment_id),
            role_id: role.clone().try_map(|role| write.resolve(&role))?.apply(testcase.role_id),
            created_at: testcase.created_at,
            report_digest: testcase.report_digest,
            report_place: testcase.report_place,
        };
        let (testcase, saved) = save(context, write, before.as_ref(), testcase)?;
        Ok(outcome_with_touch(testcase, saved))
    }
}

fn positive(line: i64) -> Result<i64> {
    if line < 1 {
        return Err(Rule::usage(format!("invalid line {line}: lines are numbered from 1")).into());
    }
    Ok(line)
}

fn milliseconds(seconds: f64) -> Result<i64> {
    if !(0.0..1e12).contains(&seconds) {
        return Err(
            Rule::usage(format!("invalid duration {seconds}: it must be a number of seconds, 0 or more")).into()
        );
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked above")]
    Ok((seconds * 1_000.0).round() as i64)
}

/// Identifies an imported report by its text and by the run, experiment and role that its results belong to.
fn digest(
    report: &str,
    run: Option<Id<kind::Run>>,
    experiment: Option<Id<kind::Experiment>>,
    role: Option<Id<kind::Role>>,
) -> String {
    let mut digest = Sha256::new_with_prefix(report.as_bytes());
    for id in [run.map(Id::uuid), experiment.map(Id::uuid), role.map(Id::uuid)] {
        digest.update(id.unwrap_or_default().as_bytes());
    }
    spawn::hex(&digest.finalize())
}

fn find(write: &mut Writer<'_>, reference: &Ref<kind::Testcase>) -> Result<Testcase> {
    let id = write.resolve(reference)?;
    Ok(write
        .row_locked::<Testcase>("where tenant_id = ?1 and id = ?2", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no testcase {reference:?}")))?)
}

/// Import all results from a report of a test runner
///
/// If any result is invalid, nothing is imported. Importing the same report again, in the same run and for the same
/// experiment and role, changes nothing.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct ImportTestcases {
    /// Report file in junit.xml format (at most 20,000,000 bytes)
    #[arg(value_name = "FILE")]
    pub junit: String,
    /// Experiment that the results belong to
    #[arg(long)]
    pub experiment: Option<Ref<kind::Experiment>>,
    /// Role that the tests ran in [default: the run's]
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
}

/// The numbers of imported results.
#[derive(Debug, Default, Serialize)]
pub struct ImportedTestcases {
    pub imported: i64,
    pub ok: i64,
    pub ko: i64,
    pub todo: i64,
    /// True if the report was already imported. Then nothing was imported again.
    pub duplicate: bool,
}

impl Action for ImportTestcases {
    const NAME: &'static str = "import_testcases";
    const COMMAND: (&'static str, &'static str) = ("testcase", "import");
    const LONG_TEXT: Option<LongText> = Some(LongText::File { field: "junit", bytes_max: junit::REPORT_MAX as u64 });
    type Touched = Touch<kind::Testcase, action_type::Create>;
    type Output = ImportedTestcases;

    fn set_long_text(&mut self, text: String) {
        self.junit = text;
    }

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let experiment =
            self.experiment.as_ref().map(|reference| experiment::locked_experiment(write, reference)).transpose()?;
        let role_id = match write.resolve_optional(self.role.as_ref())? {
            Some(role) => Some(role),
            None => RunDefaults::of(context, write)?.role,
        };
        let mut counts = ImportedTestcases::default();
        let cases = junit::parse_cases(&self.junit)?;
        let experiment_id = experiment.as_ref().map(|experiment| experiment.id);
        let digest = digest(&self.junit, context.run, experiment_id, role_id);
        let known = write.one::<(i64,)>(
            "select 1 from testcases where tenant_id = ?1 and report_digest = ?2 limit 1",
            params![digest],
        )?;
        if known.is_some() {
            counts.duplicate = true;
            return Ok(ActionOutcome::unchanged(counts));
        }
        let mut testcases = Vec::with_capacity(cases.len());
        for (case, position) in cases.into_iter().zip(1..) {
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
                report_place: Some(position),
            });
        }
        if counts.imported == 0 {
            return Ok(ActionOutcome::unchanged(counts));
        }
        write.insert_all(&testcases)?;
        let resources: Vec<_> = testcases.iter().map(resource).collect();
        let entries: Vec<_> = resources
            .iter()
            .map(|resource| NewRegistryEntry::new(write, context.actor.id(), resource.id, &resource.path))
            .collect();
        write.insert_all(&entries)?;
        let subject = match &experiment {
            Some(experiment) => subject(experiment),
            None => Subject::from(&Resource::<kind::Tenant>::new(context.tenant, "test cases")),
        };
        let detail = json!(counts);
        Ok(ActionOutcome::changed(counts, subject, Touch::many(resources)).with_detail(detail))
    }
}
