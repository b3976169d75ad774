//! The alert rules in infra/alerts: what they ask is PromQL, and is there to be asked.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use promql_parser::util::parse_duration;
use sendslot_shared::metrics::{self, Kind, Metric, Origin, TABLE};
use serde::Deserialize;

const PROMETHEUS: &str = include_str!("../../infra/alerts/prometheus.yml");
const CLOUDWATCH: &str = include_str!("../../infra/alerts/cloudwatch.json");

/// As Prometheus reads it: a field that it does not know is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[expect(dead_code, reason = "it has to be there")]
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    r#for: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

type Labels = BTreeSet<String>;

fn labels<'a>(names: impl IntoIterator<Item = &'a str>) -> Labels {
    names.into_iter().map(str::to_owned).collect()
}

fn metric(name: &str) -> Option<&'static Metric> {
    TABLE.iter().copied().find(|metric| metric.name == name)
}

/// What Prometheus sees of the table.
struct Series {
    metric: &'static Metric,
    labels: Labels,
    rises: bool,
}

impl Series {
    fn of(name: &str) -> Result<Self, String> {
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| Some((name.strip_suffix(part)?, *part)));
        let histogram = part.and_then(|(name, part)| Some((metric(name)?, part)));
        if let Some((metric @ Metric { kind: Kind::Histogram(_), .. }, part)) = histogram {
            let bounds = (part == "_bucket").then_some("le");
            return Ok(Self { metric, labels: labels(metric.labels.iter().copied().chain(bounds)), rises: true });
        }
        match metric(name) {
            None => Err(format!("{name} is no metric of the table")),
            Some(Metric { kind: Kind::Histogram(_), .. }) => {
                Err(format!("{name} is a histogram: it has no such series"))
            }
            Some(metric) => {
                Ok(Self { metric, labels: labels(metric.labels.iter().copied()), rises: metric.kind == Kind::Counter })
            }
        }
    }
}

/// What an expression asks for, and the labels that its answers have; none of a number.
#[derive(Default)]
struct Reader {
    metrics: BTreeSet<&'static str>,
}

impl Reader {
    fn read(&mut self, expr: &Expr) -> Result<Option<Labels>, String> {
        match expr {
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(None),
            Expr::Paren(of) => self.read(&of.expr),
            Expr::Unary(of) => self.read(&of.expr),
            Expr::Subquery(of) => self.read(&of.expr),
            Expr::VectorSelector(selector) => {
                let series = self.select(selector)?;
                if series.rises { Err(format!("{expr}: rate of it is meant")) } else { Ok(Some(series.labels)) }
            }
            Expr::MatrixSelector(matrix) => Err(format!("{}[…] outside of a function", matrix.vs)),
            Expr::Call(call) => match (call.func.name, call.args.args.as_slice()) {
                ("rate" | "increase", [of]) => match &**of {
                    Expr::MatrixSelector(matrix) => {
                        let series = self.select(&matrix.vs)?;
                        let labels = series.rises.then_some(series.labels);
                        labels.map(Some).ok_or_else(|| format!("{expr}: a gauge has no rate"))
                    }
                    _ => Err(format!("{expr}: not of a metric")),
                },
                ("histogram_quantile", [of, buckets]) => {
                    let Expr::NumberLiteral(of) = &**of else { return Err(format!("{expr}: of a number")) };
                    let mut labels = self.read(buckets)?.ok_or_else(|| format!("{expr}: of no metric"))?;
                    if !(0.0..=1.0).contains(&of.val) || !labels.remove("le") {
                        return Err(format!("{expr}: a part, of buckets by their bounds"));
                    }
                    Ok(Some(labels))
                }
                (other, _) => Err(format!("{other}: this test does not know it yet")),
            },
            Expr::Aggregate(of) => {
                let inner = self.read(&of.expr)?.ok_or_else(|| format!("{expr}: of a number"))?;
                match &of.modifier {
                    None => Ok(Some(Labels::new())),
                    Some(LabelModifier::Include(by)) => {
                        let by = labels(by.labels.iter().map(String::as_str));
                        let unknown: Vec<_> = by.difference(&inner).collect();
                        if unknown.is_empty() { Ok(Some(by)) } else { Err(format!("{expr}: no label {unknown:?}")) }
                    }
                    Some(LabelModifier::Exclude(_)) => Err(format!("{expr}: name the labels that stay")),
                }
            }
            Expr::Binary(of) => {
                let (left, right) = (self.read(&of.lhs)?, self.read(&of.rhs)?);
                if of.modifier.as_ref().is_some_and(|modifier| modifier.matching.is_some()) {
                    return Err(format!("{expr}: this test does not know `on` and `ignoring` yet"));
                }
                match (left, right) {
                    (Some(left), Some(right)) if of.op.to_string() == "or" => Ok(Some(&left | &right)),
                    // of other labels nothing ever meets
                    (Some(left), Some(right)) if left != right => Err(format!("{expr}: {left:?} never meet {right:?}")),
                    (left, right) => Ok(left.or(right)),
                }
            }
            Expr::Extension(_) => Err("the parser makes none".to_owned()),
        }
    }

    fn select(&mut self, selector: &VectorSelector) -> Result<Series, String> {
        let series = Series::of(selector.name.as_deref().ok_or_else(|| format!("{selector}: without a name"))?)?;
        let (all, others) = (&selector.matchers.matchers, &selector.matchers.or_matchers);
        for matcher in all.iter().chain(others.iter().flatten()) {
            if !series.labels.contains(&matcher.name) {
                return Err(format!("{selector}: no label {:?}", matcher.name));
            }
            if let (true, Kind::Histogram(bounds)) = (matcher.name == "le", series.metric.kind)
                && !bounds.iter().any(|bound| bound.to_string() == matcher.value)
            {
                return Err(format!("{selector}: no bucket ends there"));
            }
        }
        self.metrics.insert(series.metric.name);
        Ok(series)
    }
}

/// The labels that a template names.
fn named(template: &str) -> Result<Labels, String> {
    if template.matches("{{").count() != template.matches("}}").count() {
        return Err(format!("{template}: a brace is missing"));
    }
    let after = template.split("$labels.").skip(1);
    Ok(after.map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()).collect())
}

/// The metrics that the rules of a file ask for.
fn check_rules(yaml: &str) -> Result<BTreeSet<&'static str>, String> {
    let rules: Rules = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
    let mut reader = Reader::default();
    let mut names = BTreeSet::new();
    for rule in rules.groups.iter().flat_map(|group| &group.rules) {
        let of = |error: String| format!("{}: {error}", rule.alert);
        if !names.insert(&rule.alert) {
            return Err(of("twice".to_owned()));
        }
        parse_duration(&rule.r#for).map_err(of)?;
        let answers = reader.read(&parser::parse(&rule.expr).map_err(of)?).map_err(of)?;
        let answers = answers.ok_or_else(|| of("a number and no question".to_owned()))?;
        for field in ["summary", "remedy"] {
            let text = rule.annotations.get(field).ok_or_else(|| of(format!("no {field}")))?;
            let unknown: Vec<_> = named(text).map_err(of)?.difference(&answers).cloned().collect();
            if !unknown.is_empty() {
                return Err(of(format!("the {field} names {unknown:?}, the answers have {answers:?}")));
            }
        }
        if !matches!(rule.labels.get("severity").map(String::as_str), Some("page" | "ticket")) {
            return Err(of("whom does it wake?".to_owned()));
        }
    }
    Ok(reader.metrics)
}

#[test]
fn prometheus_rules_ask_for_what_the_table_has() {
    let asked = check_rules(PROMETHEUS).unwrap();
    let leading = [
        &metrics::OVERDUE,
        &metrics::DEADLINE_USED,
        &metrics::HORIZON,
        &metrics::REBOOKED,
        &metrics::UNUSED,
        &metrics::CALL_DELAY,
        &metrics::JITTER,
        &metrics::REDIS_UP,
    ];
    assert!(leading.iter().all(|metric| asked.contains(metric.name)), "{asked:?}");
    // and Prometheus' own reader, where there is one
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/alerts/prometheus.yml");
    if let Ok(checked) = std::process::Command::new("promtool").args(["check", "rules", path]).output() {
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn broken_prometheus_rules_are_found() {
    for (good, bad, words) in [
        (
            "(sendslot_overdue_seconds)",
            "(sendslot_overdue_secs)",
            "SendslotOverdue: sendslot_overdue_secs is no metric",
        ),
        ("(sendslot_overdue_seconds) > 60", "(sendslot_overdue_seconds > 60", "SendslotOverdue:"),
        ("(sendslot_overdue_seconds) > 60", "(sendslot_overdue_seconds) >> 60", "SendslotOverdue:"),
        ("max by (budget) (sendslot_overdue", "max by (lane) (sendslot_overdue", "no label [\"lane\"]"),
        ("unless max by (budget) (sendslot_paused)", "unless max(sendslot_paused)", "never meet"),
        ("rate(sendslot_sends_total[10m])", "sendslot_sends_total", "rate of it is meant"),
        ("rate(sendslot_sends_total[10m])", "rate(sendslot_sends_total[ten])", "SendslotRebooked:"),
        ("rate(sendslot_sends_total[10m])", "rate(sendslot_wait_seconds[10m])", "it has no such series"),
        ("rate(sendslot_sends_total[10m])", "rate(sendslot_unused_ratio[10m])", "a gauge has no rate"),
        ("sum by (budget, le) (", "sum by (budget) (", "of buckets by their bounds"),
        ("histogram_quantile(0.5,", "histogram_quantile(50,", "of buckets by their bounds"),
        ("> max by (budget) (sendslot_jitter", "> max(sendslot_jitter", "never meet"),
        ("{reason!~", "{why!~", "no label \"why\""),
        ("displaced|", "displaced(|", "SendslotRebooked:"),
        ("{le=\"0.75\"}", "{le=\"0.7\"}", "no bucket ends there"),
        ("_ratio_bucket{le=\"0.75\"}", "_ratio_count{le=\"0.75\"}", "no label \"le\""),
        ("for: 30s", "for: a while", "SendslotRedisAway:"),
        ("for: 30s", "fore: 30s", "fore"),
        ("severity: ticket", "severity: tickle", "whom does it wake"),
        ("{{ $labels.budget }}: sends are overdue", "{{ $labels.lane }}: sends are overdue", "the summary names"),
        ("  - name: sendslot", "  - name: [sendslot", ""),
    ] {
        assert!(PROMETHEUS.contains(good), "{good}");
        let found = check_rules(&PROMETHEUS.replacen(good, bad, 1));
        assert!(found.as_ref().is_err_and(|error| error.contains(words)), "{bad}: {found:?}");
    }
}

/// What `PutMetricAlarm` takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Alarm {
    alarm_name: String,
    alarm_description: String,
    namespace: Option<String>,
    metric_name: Option<String>,
    dimensions: Option<Vec<Dimension>>,
    statistic: Option<String>,
    extended_statistic: Option<String>,
    period: Option<u32>,
    metrics: Option<Vec<Query>>,
    evaluation_periods: u32,
    #[expect(dead_code, reason = "it has to be there")]
    threshold: f64,
    comparison_operator: String,
    treat_missing_data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Dimension {
    name: String,
    #[expect(dead_code, reason = "it has to be there")]
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Query {
    id: String,
    expression: Option<String>,
    metric_stat: Option<MetricStat>,
    return_data: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct MetricStat {
    metric: Asked,
    period: u32,
    stat: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Asked {
    namespace: String,
    metric_name: String,
    dimensions: Vec<Dimension>,
}

/// That there are such numbers in CloudWatch: workers write each metric by all its labels and by budget alone.
fn check_asked(asked: &Asked, stat: &str, period: u32) -> Result<(), String> {
    let name = &asked.metric_name;
    let dimensions = labels(asked.dimensions.iter().map(|dimension| dimension.name.as_str()));
    if period == 0 || !period.is_multiple_of(60) {
        return Err(format!("{name}: {period} s is no period"));
    }
    if asked.namespace == "AWS/SQS" {
        let known = name == "ApproximateAgeOfOldestMessage" && dimensions == labels(["QueueName"]);
        return known.then_some(()).ok_or_else(|| format!("{name}: SQS has no such metric by {dimensions:?}"));
    }
    let metric = metric(name).filter(|_| asked.namespace == "Sendslot");
    let metric = metric.ok_or_else(|| format!("{}/{name} is no metric of the table", asked.namespace))?;
    if !matches!(metric.origin, Origin::Worker | Origin::Both) {
        return Err(format!("{name}: workers do not write it"));
    }
    if dimensions != labels(["budget"]) && dimensions != labels(metric.labels.iter().copied()) {
        return Err(format!("{name}: not there by {dimensions:?}"));
    }
    let is_percentile = stat.strip_prefix('p').is_some_and(|part| part.parse::<f64>().is_ok_and(|part| part <= 100.0));
    match metric.kind {
        Kind::Counter if stat == "Sum" => Ok(()),
        Kind::Gauge if matches!(stat, "Maximum" | "Minimum") => Ok(()),
        Kind::Histogram(_) if is_percentile => Ok(()),
        kind => Err(format!("{name}: {stat} says nothing of a {kind:?}")),
    }
}

impl Alarm {
    fn check(self) -> Result<(), String> {
        let comparisons = ["GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold"];
        let periods = self.evaluation_periods > 0 && !self.alarm_description.is_empty();
        if !periods || !comparisons.contains(&&*self.comparison_operator) || self.treat_missing_data != "notBreaching" {
            return Err("description, periods, comparison or missing data".to_owned());
        }
        let Some(queries) = self.metrics else {
            let (Some(namespace), Some(metric_name), Some(dimensions), Some(period)) =
                (self.namespace, self.metric_name, self.dimensions, self.period)
            else {
                return Err("of what?".to_owned());
            };
            let stat = match (self.statistic, self.extended_statistic) {
                (Some(stat), None) if !stat.starts_with('p') => stat,
                (None, Some(stat)) if stat.starts_with('p') => stat,
                other => return Err(format!("{other:?}: one of Statistic and ExtendedStatistic")),
            };
            return check_asked(&Asked { namespace, metric_name, dimensions }, &stat, period);
        };
        let ids = labels(queries.iter().map(|query| query.id.as_str()));
        if queries.iter().filter(|query| query.return_data).count() != 1 || ids.len() != queries.len() {
            return Err("one of the queries answers, and each has an ID of its own".to_owned());
        }
        for query in &queries {
            match (&query.expression, &query.metric_stat) {
                (Some(expression), None) => {
                    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let names = words.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
                    if let Some(name) = names.into_iter().find(|name| !ids.contains(*name)) {
                        return Err(format!("{expression}: there is no {name}"));
                    }
                }
                (None, Some(of)) => check_asked(&of.metric, &of.stat, of.period)?,
                _ => return Err(format!("{}: an expression or a metric", query.id)),
            }
        }
        Ok(())
    }
}

fn check_alarms(json: &str) -> Result<usize, String> {
    let alarms: Vec<Alarm> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let n = alarms.len();
    let names: BTreeSet<String> = alarms.iter().map(|alarm| alarm.alarm_name.clone()).collect();
    if names.len() != n {
        return Err("a name twice".to_owned());
    }
    for alarm in alarms {
        let name = alarm.alarm_name.clone();
        alarm.check().map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(n)
}

#[test]
fn cloudwatch_alarms_ask_for_what_workers_write() {
    assert_eq!(check_alarms(CLOUDWATCH), Ok(7));
}

#[test]
fn broken_cloudwatch_alarms_are_found() {
    for (good, bad, words) in [
        ("sendslot_deadline_used_ratio", "sendslot_deadline_used", "is no metric of the table"),
        ("\"Namespace\": \"Sendslot\"", "\"Namespace\": \"sendslot\"", "is no metric of the table"),
        ("sendslot_wait_seconds", "sendslot_booked_horizon_seconds", "workers do not write it"),
        ("\"Name\": \"budget\"", "\"Name\": \"lane\"", "not there by"),
        ("\"ExtendedStatistic\": \"p80\"", "\"Statistic\": \"Sum\"", "says nothing of"),
        ("\"ExtendedStatistic\": \"p80\"", "\"Statistic\": \"p80\"", "ExtendedStatistic"),
        ("\"Stat\": \"Sum\"", "\"Stat\": \"p50\"", "says nothing of"),
        ("moved / sends", "moved / calls", "there is no calls"),
        ("\"Period\": 300", "\"Period\": 45", "no period"),
        ("\"ReturnData\": false", "\"ReturnData\": true", "one of the queries answers"),
        ("ApproximateAgeOfOldestMessage", "ApproximateAgeOfOldestMessages", "SQS has no such metric"),
        ("\"Threshold\"", "\"Treshold\"", "Treshold"),
        ("-wait\"", "-deadlines\"", "a name twice"),
        ("sendslot_call_delay_seconds", "sendslot_jitter_seconds", "workers do not write it"),
    ] {
        assert!(CLOUDWATCH.contains(good), "{good}");
        let found = check_alarms(&CLOUDWATCH.replacen(good, bad, 1));
        assert!(found.as_ref().is_err_and(|error| error.contains(words)), "{bad}: {found:?}");
    }
}
