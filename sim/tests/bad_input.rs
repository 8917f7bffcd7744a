//! Bad input: each way a file can be wrong, and what the message must name; and that no bytes at all make a reader panic.
//! It never tests what good files become.

mod workloads;

use forebay_sim::market::Market;
use forebay_sim::trace::{self, TraceFormat, generate_trace, read_events, read_nodes};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use workloads::{as_csv, file};

const HEAD: &str = "job_id,submit_s,duration_s,gpus,gpu_milli,workers,queue";

/// The message for a file of this content must have each of the pieces.
#[track_caller]
fn check(content: impl AsRef<[u8]>, format: Option<TraceFormat>, pieces: &[&str]) {
    let (_folder, path) = file("input.csv", content);
    let message = trace::read(&path, format).expect_err("a bad file").to_string();
    let all = pieces.iter().chain(&["input.csv", "; "]);
    for piece in all {
        assert!(message.contains(piece), "no \"{piece}\" in: {message}");
    }
    assert!(message.len() < 700 && !message.contains('\n'), "{message}");
}

#[test]
fn a_bad_value_names_line_column_value_and_remedy() {
    let row = |row: &str| format!("{HEAD}\nok,1,1,1,1000,,q\n{row}\n");
    let cases: [(&str, &[&str]); 16] = [
        ("b,abc,1,1,1000,,", &["line 3, column submit_s: not a number, found \"abc\"", "write seconds"]),
        ("b,-3,1,1,1000,,", &["line 3, column submit_s: negative, found \"-3\""]),
        ("b,1,nan,1,1000,,", &["column duration_s: not a number, found \"nan\""]),
        ("b,1,,1,1000,,", &["column duration_s: no value"]),
        ("b,1,99999999999,1,1000,,", &["column duration_s: more than a hundred years"]),
        ("b,1,1,1.5,1000,,", &["column gpus: not a whole number, found \"1.5\""]),
        ("b,1,1,99999999999999999999999,1000,,", &["column gpus: too large"]),
        ("b,1,1,1,0,,", &["column gpu_milli: out of range, found \"0\"", "write 1 to 1000"]),
        ("b,1,1,1,1001,,", &["column gpu_milli: out of range, found \"1001\""]),
        ("b,1,1,2,500,,", &["column gpu_milli: a share of each of 2 GPUs", "write 1000"]),
        ("b,1,1,8,1000,3,", &["column workers: 8 GPUs cannot be spread evenly", "found \"3\""]),
        ("b,1,1,8,1000,0,", &["column workers: a gang without workers"]),
        (",1,1,1,1000,,", &["column job_id: not an id, found \"\""]),
        ("ok,1,1,1,1000,,", &["line 3, column job_id: \"ok\" is on line 2 already", "remove one"]),
        ("b,1,1,1,1000,,q,extra", &["line 3: 8 fields where the header has 7", "double quotes"]),
        ("b,1,\"1\"1,1,1000,,", &["line 3: text after a closing double quote"]),
    ];
    for (bad, pieces) in cases {
        check(row(bad), None, pieces);
    }
    let long = "x\u{7}".repeat(500);
    check(row(&format!("b,{long},1,1,1000,,")), None, &["column submit_s", "x\\u{7}x", "...\""]);
}

#[test]
fn a_bad_file_says_what_is_wrong_with_it() {
    let cases: [(&[u8], &[&str]); 14] = [
        (b"", &["the file is empty", "written in full"]),
        (b" \n\r\n", &["the file is empty"]),
        (b"job_id,submit_s,duration_s,gpus\n", &["a header but no jobs"]),
        (
            b"job_id,submit_s,gpus\na,1,1\n",
            &["line 1, column duration_s: the column is missing", "job_id,submit_s,gpus", "add a column"],
        ),
        (b"job_id,submit_s,Duration,gpus\na,1,1,1\n", &["rename column duration to duration_s"]),
        (b"job_id,submit_s,duration_s,gpus,gpus\na,1,1,1,1\n", &["line 1: two columns are called gpus"]),
        (
            b"when,who\n1,2\n",
            &["line 1: not a trace format known here, begins with \"when,who\"", "openb, philly, helios"],
        ),
        (b"job_id,submit_s,duration_s,gpus\na,1,1,1\nb,1,1", &["line 3: the last row has 3 fields", "cut off"]),
        (b"job_id,submit_s,duration_s,gpus\na,1,1,1\n\"b,1,1,1\n", &["line 3: a double quote opens", "cut off"]),
        (b"job_id,submit_s,duration_s,gpus\na,1,1,\xff\n", &["line 2: not UTF-8 text", "saved as UTF-8"]),
        (b"job_id,submit_s\n\0\0\0", &["line 2: not text (a zero byte)"]),
        (b"\x1f\x8b\x08\x00", &["a gzip archive", "gunzip"]),
        (b"\xff\xfej\0o\0", &["UTF-16", "UTF-8"]),
        (
            b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,1000\n",
            &["column creation_time: the column is missing"],
        ),
    ];
    for (content, pieces) in cases {
        check(content, None, pieces);
    }
    let endless = format!("{HEAD}\n\"{}", "x".repeat(3 << 20));
    check(endless, None, &["line 2: a row of more than 1 MiB", "quote"]);
    let missing = trace::read("no/such/file.csv", None).expect_err("no file").to_string();
    assert!(missing.contains("no/such/file.csv: no such file; check the path"), "{missing}");
    let folder = trace::read(".", None).expect_err("a folder").to_string();
    assert!(folder.contains("cannot be read"), "{folder}");
}

#[test]
fn bad_json_says_what_is_wrong_with_it() {
    let philly = Some(TraceFormat::Philly);
    let good = r#"{"jobid": "a", "attempts": [], "submitted_time": "2017-10-07 01:11:39"}"#;
    check(
        format!("[\n{good},\n{{\"jobid\": \"b\", \"att"),
        None,
        &["line 3: a JSON object begins and is never closed", "cut off"],
    );
    check(format!("[\n{good},\n"), None, &["the JSON array is never closed", "cut off"]);
    check(
        format!("[\n{good},\n{{\"jobid\": oops}}]"),
        philly,
        &["line 3: not JSON at byte 11 of the line: expected value"],
    );
    check(
        format!("[\n{good},\n  {{\"jobid\":\noops}}]"),
        philly,
        &["line 4: not JSON at byte 1 of the line: expected value"],
    );
    // What is not closed because it is broken was not cut off.
    let unnamed = "not JSON at byte 2 of the line: key must be a string; correct the object";
    check(format!("[\n{good},\n{{jobid: \n{good},\n{good}\n]"), None, &["line 3: ", unnamed]);
    check(
        format!("[\n{good},\n{{\"jobid\": \"b}},\n{good}\n]"),
        None,
        &["line 3: not JSON at byte 14 of the line: control character"],
    );
    check("{\"jobid\": \"b\n\"}", philly, &["line 1: not JSON at the end of the line: control character"]);
    check(
        format!("{good}\n  {{jobid: {}", "x".repeat(17 << 20)),
        philly,
        &["line 2: not JSON at byte 4 of the line: key must be a string"],
    );
    check(format!("[\n{good},\n 7]"), philly, &["line 3: \"7\" where a JSON object should begin"]);
    check("[]", philly, &["the file has no jobs"]);
    check(r#"[{"attempts": []}]"#, None, &["line 1, column jobid: the column is missing, found attempts"]);
    check(
        good.replace("2017-10-07", "yesterday"),
        None,
        &["column submitted_time: not a time, found \"yesterday 01:11:39\"", "write it as"],
    );
    let twice = format!("{}\n{}", attempted("a"), attempted("a"));
    check(twice, None, &["line 2, column jobid: \"a\" is on line 1 already"]);
    check(
        "{\"type\":\"job.submitted\",\"time\":\"soon\"}\n",
        None,
        &["line 1, column time: not a time, found \"soon\"", "RFC 3339"],
    );
    check("{\"type\":\"job.submitted\"}\n", None, &["column time: the column is missing"]);
    check(
        "{\"type\":\"job.submitted\",\"tiem\":\"2026-11-02T00:00:00Z\"}\n",
        None,
        &["line 1, column time: the column is missing", "rename `tiem` to `time`"],
    );
    check(
        "\n\n{\"type\":7,\"time\":\"2026-11-02T00:00:00Z\"}\n",
        None,
        &["line 3, column type: not text, found \"7\""],
    );
    let market = r#"{"type":"simulation.market","time":"2026-11-02T00:00:00Z","data":{"drought":{"from":"2026-11-02T00:00:00Z","to":"2026-11-01T00:00:00Z"}}}"#;
    check(market, None, &["line 1, column data.drought.to: not after data.drought.from", "write a later time"]);
    let job = r#"{"type":"job.submitted","time":"2026-11-02T00:00:00Z","subject":"a","data":{"simulation":{"durationS":-1}}}"#;
    check(job, None, &["line 1, column data.simulation.durationS: negative, found \"-1\""]);
}

fn attempted(id: &str) -> String {
    let attempt = r#"{"start_time":"2017-10-07 01:12:09","end_time":"2017-10-07 01:13:23","detail":[]}"#;
    format!(r#"{{"jobid":"{id}","attempts":[{attempt}],"submitted_time":"2017-10-07 01:11:39"}}"#)
}

/// Every reader, on the same bytes; what counts is that each comes back, and that errors are short and have a remedy.
fn every_reader(bytes: &[u8]) {
    let (_folder, path) = file("any", bytes);
    let formats =
        [TraceFormat::Normalized, TraceFormat::Openb, TraceFormat::Philly, TraceFormat::Helios, TraceFormat::Events];
    let pairs = [("p3.2xlarge".to_owned(), "z".to_owned())];
    let errors = std::iter::once(None)
        .chain(formats.map(Some))
        .filter_map(|format| trace::read(&path, format).err())
        .chain(read_events(&path).err())
        .chain(read_nodes(&path).err())
        .chain(Market::recorded(&path, &pairs).err())
        .chain(forebay_catalog::read(&path).err());
    for message in errors.map(|e| e.to_string()) {
        assert!(message.contains("; ") && message.contains("any"), "{message}");
        assert!(message.len() < 1500 && !message.chars().any(char::is_control), "{message:?}");
    }
}

/// Good files to spoil, a few rows each.
fn good_files() -> Vec<String> {
    let openb = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
                 p-0,12000,16384,1,460,\"T4|G2\",LS,Running,427061,437061,427071\n";
    let helios = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
                  1,u,v,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n";
    let market = "dataset,t_s,zone,instance_type,available,capacity,probe_gap_s\nd,0,z,p3.2xlarge,1,4,600\nd,600,z,p3.2xlarge,4,4,600\n";
    let prices: Vec<&str> = forebay_catalog::BUILTIN_CSV.lines().take(4).collect();
    let day: Vec<&str> = include_str!("../../examples/day.jsonl").lines().take(6).collect();
    vec![
        as_csv(&generate_trace(1, 5)),
        openb.to_owned(),
        format!("[\n{},\n{}\n]", attempted("a"), attempted("b")),
        helios.to_owned(),
        day.join("\n"),
        "node,cpu_milli,mem_mib,gpus,gpu_model\nn0,64000,262144,2,P100\n".to_owned(),
        market.to_owned(),
        prices.join("\r\n"),
    ]
}

proptest! {
    // Always the same cases; PROPTEST_RNG_SEED gives others.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(96) })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        every_reader(&bytes);
    }

    #[test]
    fn random_text_under_a_good_header_never_panics(rows in "([0-9a-z.,\"\\-\n\r{}:\\[\\]é ]{0,20}[,\n]){0,30}", which in 0usize..8) {
        let files = good_files();
        let head = files[which].lines().next().unwrap_or_default();
        every_reader(format!("{head}\n{rows}").as_bytes());
    }

    #[test]
    fn spoilt_files_never_panic(
        which in 0usize..8,
        cut in any::<prop::sample::Index>(),
        spoils in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let files = good_files();
        let mut bytes = files[which].clone().into_bytes();
        for (at, byte) in &spoils {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        every_reader(&bytes);
    }

    #[test]
    fn a_trace_cut_anywhere_is_an_error_a_note_or_ends_after_a_row(cut in any::<prop::sample::Index>()) {
        let whole = as_csv(&generate_trace(5, 6));
        let at = cut.index(whole.len());
        let (_folder, path) = file("cut.csv", &whole[..at]);
        if let Ok(trace) = trace::read(&path, None) {
            let after_a_row = whole[..at].ends_with('\n');
            prop_assert!(after_a_row || !trace.notes.is_empty(), "cut at {at} went unnoticed");
        }
    }
}
