//! What EC2 shows that a journal has bought: the tags of its instances, those that have ended lately among them.
//!
//! ```text
//! a start --ask--> list by tag, all pages -> purchases of this journal in this incarnation
//! ```

use super::{aws_settings, sdk, wait_for};
use crate::config::ec2::Ec2Config;
use crate::driver::{GivenOut, Witness};
use forebay_capacity_ec2::request::{TAG_JOURNAL, TAG_PURCHASE};
use forebay_capacity_ec2::{DescribedInstance, Ec2Call, Ec2Response};
use forebay_kernel::storage::JournalId;
use std::sync::Arc;
use std::time::Duration;

/// How long a start waits for a listing. Without an answer the first listing of the task tells.
const TIMEOUT: Duration = Duration::from_secs(10);

/// EC2 as a witness.
pub fn witness(config: &Ec2Config) -> Witness {
    let name = format!("ec2:{}", config.name);
    let config = config.clone();
    Witness { name, ask: Arc::new(move |journal| ask(&config, journal)) }
}

fn ask(config: &Ec2Config, journal: JournalId) -> Result<Vec<GivenOut>, String> {
    let aws = aws_settings(config).map_err(|e| e.to_string())?;
    wait_for(TIMEOUT, async {
        let client = sdk::connect(&aws).await.map_err(|e| e.to_string())?.ec2;
        let (mut found, mut next_token) = (Vec::new(), None);
        loop {
            let call = Ec2Call::List { cluster: config.name.clone(), next_token };
            match sdk::execute(&client, &call).await {
                Ec2Response::Described { instances, next_token: next } => {
                    found.extend(instances.iter().filter_map(|instance| bought_by(instance, journal)));
                    next_token = next;
                }
                Ec2Response::Refused(error) => return Err(format!("{}: {}", error.code, error.message)),
                other => return Err(format!("{other:?}")),
            }
            if next_token.is_none() {
                return Ok(found);
            }
        }
    })
}

/// The purchase of an instance, where this journal made it.
fn bought_by(instance: &DescribedInstance, journal: JournalId) -> Option<GivenOut> {
    instance.tag(TAG_JOURNAL).filter(|id| id.parse() == Ok(journal))?;
    let purchase = instance.tag(TAG_PURCHASE)?.parse().ok()?;
    Some(GivenOut { bearer: format!("instance {}", instance.instance), purchase })
}
