//! Checkpoints in S3: heads with S3's own checksums, lists, and small reads.
//!
//! Never: a write, a second try by itself, or a `403` taken for a missing file.

use crate::error::{CheckError, Refusal, Unknown};
use crate::manifest::{FOLDER, Name};
use crate::settings::{Pace, S3Settings, SettingsError};
use crate::store::{Found, Look, NOT_THERE, Newest, within};
use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::types::ChecksumMode;
use forebay_aws::{Answer, Kind, Way, chain, cut, kind_of};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Keys of one answer to a list: S3's most.
const PAGE: i32 = 1000;

/// The way to S3, found once.
#[derive(Debug)]
pub(crate) struct S3 {
    settings: S3Settings,
    /// Name and prefix of each that is asked; none: all are.
    allowed: Vec<(String, String)>,
    pace: Pace,
    way: OnceCell<(Client, Way)>,
}

/// One address of it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    s3: Arc<S3>,
    name: Arc<str>,
    prefix: Arc<str>,
}

impl S3 {
    pub fn new(settings: S3Settings, pace: Pace) -> Result<S3, SettingsError> {
        let allowed = settings.allowed()?;
        Ok(S3 { settings, allowed, pace, way: OnceCell::new() })
    }

    /// Those that are named, each at its prefix.
    pub fn named(self: &Arc<S3>) -> impl Iterator<Item = Bucket> {
        self.allowed.iter().map(|(name, prefix)| self.at(name, prefix))
    }

    /// The client, and the way that it was made on.
    pub async fn way(&self) -> Result<&(Client, Way), Unknown> {
        self.way
            .get_or_try_init(|| async {
                let way =
                    forebay_aws::find(&self.settings.place).await.map_err(|e| Unknown::new(format!("s3: {e}")))?;
                let mut config = aws_sdk_s3::config::Builder::from(&way.shared);
                config.set_endpoint_url(way.endpoint.clone());
                // A name of a bucket before a name of a host that is not AWS's is found by nobody.
                config.set_force_path_style(Some(way.endpoint.is_some()));
                Ok((Client::from_conf(config.build()), way))
            })
            .await
    }

    /// An address, where its bucket may be asked.
    pub fn bucket(self: &Arc<S3>, name: &str, prefix: &str) -> Result<Bucket, Refusal> {
        let lies_in = |(bucket, below): &(String, String)| bucket == name && prefix.starts_with(below);
        if self.allowed.is_empty() || self.allowed.iter().any(lies_in) {
            return Ok(self.at(name, prefix));
        }
        let why = "it is not among `checkpoints.s3.buckets`; save to one of these, or have it added".to_owned();
        Err(Refusal::Address { uri: format!("s3://{name}/{prefix}"), why })
    }

    fn at(self: &Arc<S3>, name: &str, prefix: &str) -> Bucket {
        Bucket { s3: Arc::clone(self), name: name.into(), prefix: prefix.into() }
    }
}

impl Bucket {
    pub fn place(&self, key: &str) -> String {
        format!("s3://{}/{}{key}", self.name, self.prefix)
    }

    /// As it is named in the settings.
    pub fn shown(&self) -> String {
        if self.prefix.is_empty() { self.name.to_string() } else { format!("{}/{}", self.name, self.prefix) }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    async fn client(&self) -> Result<&Client, Unknown> {
        Ok(&self.s3.way().await?.0)
    }

    pub async fn look(&self, key: &str) -> Result<Look<Found>, CheckError> {
        let place = self.place(key);
        let call = self.client().await?.head_object().bucket(&*self.name).key(self.key(key));
        let sent = call.checksum_mode(ChecksumMode::Enabled).send();
        let asked = async { self.answered("HeadObject", &place, sent.await) };
        Ok(match within(self.s3.pace.call, "HeadObject", &place, asked).await? {
            None => Look::Absent(NOT_THERE),
            Some(head) => Look::There(Found {
                size: head.content_length().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
                checksum: head.checksum_sha256().map(str::to_owned),
            }),
        })
    }

    pub async fn read(&self, key: &str, most: u64) -> Result<Look<Vec<u8>>, CheckError> {
        let place = self.place(key);
        let work = async {
            let Some(answer) = self.get(key, &place).await? else { return Ok(Look::Absent(NOT_THERE)) };
            let mut bytes = Vec::new();
            self.each(&place, answer, |part| {
                let room = usize::try_from((most + 1).saturating_sub(bytes.len() as u64)).unwrap_or(usize::MAX);
                bytes.extend_from_slice(part.get(..room).unwrap_or(part));
                bytes.len() as u64 <= most
            })
            .await?;
            Ok::<_, CheckError>(Look::There(bytes))
        };
        within(self.s3.pace.read, "GetObject", &place, work).await
    }

    pub async fn hash(&self, key: &str, size: u64) -> Result<Look<[u8; 32]>, CheckError> {
        let place = self.place(key);
        let work = async {
            let Some(answer) = self.get(key, &place).await? else { return Ok(Look::Absent(NOT_THERE)) };
            let (mut hash, mut seen) = (Sha256::new(), 0);
            // One that has grown since it was looked at is read a little further, and has another hash for that.
            self.each(&place, answer, |part| {
                hash.update(part);
                seen += part.len() as u64;
                seen <= size
            })
            .await?;
            Ok::<_, CheckError>(Look::There(hash.finalize().into()))
        };
        within(self.s3.pace.read + Duration::from_secs(size / (20 << 20)), "GetObject", &place, work).await
    }

    async fn get(&self, key: &str, place: &str) -> Result<Option<GetObjectOutput>, CheckError> {
        let call = self.client().await?.get_object().bucket(&*self.name).key(self.key(key));
        self.answered("GetObject", place, call.send().await)
    }

    /// Hands on each part of a body, for as long as more are wanted.
    async fn each(
        &self,
        place: &str,
        answer: GetObjectOutput,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Unknown> {
        let mut body = answer.body;
        while let Some(part) = body.next().await {
            let part = part
                .map_err(|e| Unknown::new(format!("{place}: GetObject broke off: {}; tried again", cut(&chain(&e)))))?;
            if !take(&part) {
                break;
            }
        }
        Ok(())
    }

    pub async fn newest(&self, attempt: u32, most: usize) -> Result<Vec<Name>, CheckError> {
        let (place, folder) = (self.place(FOLDER), self.key(FOLDER));
        let mut newest = Newest::new(attempt, most);
        let mut from: Option<String> = None;
        loop {
            let call = self.client().await?.list_objects_v2().bucket(&*self.name).prefix(&folder).max_keys(PAGE);
            let sent = call.set_continuation_token(from.take()).send();
            let asked = async { self.answered("ListObjectsV2", &place, sent.await) };
            let page = within(self.s3.pace.call, "ListObjectsV2", &place, asked).await?;
            let Some(page) = page else {
                return Err(Refusal::NoBucket { bucket: self.name.to_string() }.into());
            };
            let keys = page.contents().iter().filter_map(|object| object.key()?.strip_prefix(&*self.prefix));
            keys.into_iter().try_for_each(|key| newest.take(&place, key))?;
            match page.next_continuation_token() {
                Some(token) if page.is_truncated() == Some(true) => from = Some(token.to_owned()),
                _ => return Ok(newest.names()),
            }
        }
    }

    /// Lists at most one key of its prefix, to see whether that is allowed.
    pub async fn try_list(&self) -> Result<(), CheckError> {
        let place = self.place("");
        let call = self.client().await?.list_objects_v2().bucket(&*self.name).prefix(&*self.prefix).max_keys(1);
        let sent = call.send();
        let asked = async { self.answered("ListObjectsV2", &place, sent.await) };
        match within(self.s3.pace.call, "ListObjectsV2", &place, asked).await? {
            Some(_) => Ok(()),
            None => Err(Refusal::NoBucket { bucket: self.name.to_string() }.into()),
        }
    }

    /// An answer. `None`: it is not there, and S3 says so.
    fn answered<T, E>(&self, action: &str, place: &str, answer: Result<T, SdkError<E>>) -> Result<Option<T>, CheckError>
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let error = match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        let why = match Answer::of(&error) {
            Answer::Service { code, .. } if code == "NoSuchBucket" => {
                return Err(Refusal::NoBucket { bucket: self.name.to_string() }.into());
            }
            // The answer to a head has no body, and so no code.
            Answer::Service { status: 404, .. } => return Ok(None),
            Answer::Service { code, message, status } => {
                let said =
                    if code == "without a code" { format!("status {status}") } else { format!("{code}: {message}") };
                format!("{action}: {}; {}", cut(&said), remedy(action, &code, status))
            }
            Answer::NoCredentials(why) => format!(
                "{action}: no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role of the container or \
                 the machine, or the keys in the configuration ({why})"
            ),
            Answer::NoAnswer(why) => format!("{action}: {why}; check the endpoint and the network"),
        };
        Err(Unknown::new(format!("{place}: {why}")).into())
    }
}

/// What to do about an answer that says nothing of the file.
fn remedy(action: &str, code: &str, status: u16) -> String {
    if matches!(status, 301 | 307)
        || matches!(code, "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")
    {
        return "the bucket is in another region: mend `checkpoints.s3.region`".to_owned();
    }
    match kind_of(code, status) {
        Kind::Denied if code.to_ascii_lowercase().contains("kms") => {
            "allow kms:Decrypt on the bucket's key to these credentials".to_owned()
        }
        Kind::Denied if action == "ListObjectsV2" => {
            "allow s3:ListBucket on the bucket to these credentials".to_owned()
        }
        // Without leave to list, S3 says the same of a file that is not there.
        Kind::Denied => {
            "allow s3:GetObject on the bucket's objects and s3:ListBucket on the bucket to these credentials".to_owned()
        }
        Kind::Credentials => "the credentials are not accepted: mend the access key, its secret or the role".to_owned(),
        Kind::Missing | Kind::Refused | Kind::Passing => "tried again after a pause".to_owned(),
    }
}
