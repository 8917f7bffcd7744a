//! The parameters of a Query call, with dots and numbers in their names. An invalid value is refused with its name.

use std::collections::BTreeMap;

use crate::fault::Ec2Fault;

/// The most members of one list in a request.
const MAX_MEMBERS: usize = 1000;

/// The parameters of a call, with its `Action`.
///
/// ```
/// use forebay_loopback_ec2::Params;
/// let params = Params::new("TerminateInstances").with("InstanceId.1", "i-0123456789abcdef0");
/// assert_eq!(params, Params::parse("InstanceId.1=i-0123456789abcdef0&Action=TerminateInstances"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    values: BTreeMap<String, String>,
}

impl Params {
    /// A call without parameters.
    #[must_use]
    pub fn new(action: &str) -> Params {
        Params::default().with("Action", action)
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Params {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    /// Parses a form body. The last value of a name counts.
    #[must_use]
    pub fn parse(body: &str) -> Params {
        let pairs = form_urlencoded::parse(body.as_bytes());
        Params { values: pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect() }
    }

    /// The action. It is empty if the request has none.
    #[must_use]
    pub fn action(&self) -> &str {
        self.text("Action").unwrap_or_default()
    }

    /// A parameter, unless it is absent or empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A canonical text, the same for equal requests.
    pub(crate) fn canonical(&self) -> String {
        let mut serializer = form_urlencoded::Serializer::new(String::new());
        serializer.extend_pairs(&self.values);
        serializer.finish()
    }

    /// Whether any parameter has this prefix.
    pub(crate) fn any(&self, prefix: &str) -> bool {
        let after = self.values.range(prefix.to_owned()..);
        after.take(1).any(|(name, _)| name.starts_with(prefix))
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, Ec2Fault> {
        self.text(name).ok_or_else(|| Ec2Fault::missing(name))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Ec2Fault> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Ec2Fault::invalid_value(name, other)),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>, Ec2Fault> {
        let parsed = |text: &str| text.parse().map_err(|_| Ec2Fault::invalid_value(name, text));
        self.text(name).map(parsed).transpose()
    }

    /// A price in dollars, as micro-dollars. Digits after the sixth are cut.
    pub(crate) fn dollars(&self, name: &str) -> Result<Option<u64>, Ec2Fault> {
        let parsed = |text: &str| micros(text).ok_or_else(|| Ec2Fault::invalid_value(name, text));
        self.text(name).map(parsed).transpose()
    }

    /// The values of `name.1`, `name.2`, ... up to the first that is absent.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        let members = (1..=MAX_MEMBERS).map_while(|nth| self.text(&format!("{name}.{nth}")));
        members.collect()
    }

    /// The prefixes `name.1.`, `name.2.`, ... of a list of structures, up to the first without parameters.
    pub(crate) fn members(&self, name: &str) -> Vec<String> {
        let prefixes = (1..=MAX_MEMBERS).map(|nth| format!("{name}.{nth}."));
        prefixes.take_while(|prefix| self.any(prefix)).collect()
    }

    /// The tags for resources of a type.
    pub(crate) fn tags_for(&self, resource: &str) -> BTreeMap<String, String> {
        let mut tags = BTreeMap::new();
        for spec in self.members("TagSpecification") {
            if self.text(&format!("{spec}ResourceType")) == Some(resource) {
                tags.extend(self.tags(&format!("{spec}Tag")));
            }
        }
        tags
    }

    /// The tags `name.N.Key` with `name.N.Value`. A missing value is empty.
    pub(crate) fn tags(&self, name: &str) -> BTreeMap<String, String> {
        let key_value = |prefix: &String| {
            let key = self.text(&format!("{prefix}Key"))?.to_owned();
            Some((key, self.text(&format!("{prefix}Value")).unwrap_or_default().to_owned()))
        };
        self.members(name).iter().filter_map(key_value).collect()
    }
}

/// Converts a price such as `12.3456`, digits with at most one point, to micro-dollars.
fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let six: String = part.chars().chain("000000".chars()).take(6).collect();
    whole.checked_mul(1_000_000)?.checked_add(six.parse().ok()?)
}

/// Formats micro-dollars as EC2 does, with six digits after the point.
pub(crate) fn dollars(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::{Params, dollars, micros};

    #[test]
    fn prices_are_parsed_to_the_micro_dollar() {
        let cases = [
            ("1.006", Some(1_006_000)),
            ("12", Some(12_000_000)),
            (".5", Some(500_000)),
            ("0.1234567", Some(123_456)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1e3", None),
            ("99999999999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(micros(text), expected, "{text}");
        }
        assert_eq!(dollars(1_006_000), "1.006000");
    }

    #[test]
    fn lists_end_at_a_missing_number() {
        let params = Params::parse("A.1=x&A.2=y&A.4=z&Tag.1.Key=k&Tag.2.Key=l&Tag.2.Value=a%20b");
        assert_eq!(params.list("A"), ["x", "y"]);
        let tags = params.tags("Tag");
        assert_eq!(tags.get("k").map(String::as_str), Some(""));
        assert_eq!(tags.get("l").map(String::as_str), Some("a b"));
    }
}
