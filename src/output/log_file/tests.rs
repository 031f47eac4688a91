use std::num::NonZeroU32;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const CAP: u64 = LogFile::MIN_CAP_BYTES;

/// A log in a folder of its own. Whatever is written, its files are held against the cap.
struct Desk {
    folder: TempDir,
    cap_bytes: u64,
    log: CappedLog,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = CappedLog::new(kept(&folder, CAP));
        Self { folder, cap_bytes: CAP, log }
    }

    fn restart(&mut self, cap_bytes: u64) {
        self.cap_bytes = cap_bytes;
        self.log = CappedLog::new(kept(&self.folder, cap_bytes));
    }

    fn write(&mut self, lines: &[&[u8]]) {
        self.log.write(lines.iter().map(|line| (*line, 0)), 0).unwrap();
        let bytes = self.bytes_on_disk();
        assert!(
            bytes <= self.cap_bytes,
            "{bytes} bytes on disk, over the cap of {}",
            self.cap_bytes
        );
    }

    fn bytes_on_disk(&self) -> u64 {
        fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    }

    /// As `cat engine.log engine.log.1 engine.log.2` gives it.
    fn cat(&self) -> Vec<u8> {
        let log = &self.log.kept;
        let parts = [log.path.clone(), log.older(), log.newer()];
        parts.into_iter().filter_map(|path| fs::read(path).ok()).flatten().collect()
    }

    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.cat()).unwrap().lines().map(str::to_owned).collect()
    }

    /// What the one marker says, and the lines without it.
    fn marked(&self) -> (Option<u64>, Vec<String>) {
        let mut lines = self.lines();
        let markers: Vec<_> =
            lines.extract_if(.., |line| line.contains(MARKER_END.trim_end())).collect();
        assert!(markers.len() <= 1, "{markers:?}");
        (markers.first().map(|line| parse_marker(format!("{line}\n").as_bytes()).unwrap()), lines)
    }
}

fn kept(folder: &TempDir, cap_bytes: u64) -> LogFile {
    LogFile::new(folder.path().join("engine.log")).with_cap_bytes(cap_bytes).unwrap()
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("line {number:>8} of an engine that talks and talks")).collect()
}

fn bytes_of(lines: &[String]) -> u64 {
    lines.iter().map(|line| line.len() as u64 + 1).sum()
}

#[test]
fn a_short_log_is_one_file_as_it_came() {
    let mut desk = Desk::new();
    desk.write(&[b"one", b"\xff\0", b""]);
    desk.log.write([(&b"the beginning"[..], 90_000)].into_iter(), 0).unwrap();
    assert_eq!(
        desk.cat(),
        b"one\n\xff\0\n\nthe beginning [serving-sentinel: 90000 bytes left out]\n"
    );
    assert_eq!(fs::read_dir(desk.folder.path()).unwrap().count(), 1);
}

#[test]
fn ten_times_the_cap_keeps_the_head_and_the_tail_and_says_what_is_left_out() {
    let mut desk = Desk::new();
    let all = numbered(0..14_000);
    assert!(bytes_of(&all) > 10 * CAP);
    for line in &all {
        desk.write(&[line.as_bytes()]);
    }
    let (left_out, lines) = desk.marked();
    assert_eq!(left_out, Some(bytes_of(&all) - bytes_of(&lines)), "the marker's number is exact");
    let head = usize::try_from(desk.log.kept.room_of(Part::Head)).unwrap() / (all[0].len() + 1);
    assert_eq!(lines[..head], all[..head]);
    assert_eq!(lines[head..], all[all.len() - (lines.len() - head)..], "the tail has no hole");
    assert!(desk.bytes_on_disk() > CAP / 2, "the cap is used");
    assert_eq!(
        parse_marker(format!("{}\n", desk.lines()[head]).as_bytes()),
        left_out,
        "between the two"
    );
}

#[test]
fn one_batch_or_line_by_line_give_the_same_files() {
    let (mut one, mut other) = (Desk::new(), Desk::new());
    let all = numbered(0..5_000);
    let batch: Vec<_> = all.iter().map(String::as_bytes).collect();
    one.write(&batch);
    for line in &batch {
        other.write(&[line]);
    }
    assert_eq!(one.cat(), other.cat());
}

#[test]
fn a_restart_appends_under_the_cap() {
    let (mut restarted, mut through) = (Desk::new(), Desk::new());
    let all = numbered(0..6_000);
    for run in all.chunks(457) {
        restarted.restart(CAP);
        for line in run {
            restarted.write(&[line.as_bytes()]);
            through.write(&[line.as_bytes()]);
        }
    }
    assert_eq!(restarted.cat(), through.cat(), "a restart loses nothing, and counts on");
}

#[test]
fn a_line_broken_off_by_an_earlier_run_is_ended() {
    let mut desk = Desk::new();
    fs::write(&desk.log.kept.path, "broken of").unwrap();
    desk.write(&[b"next"]);
    assert_eq!(desk.lines(), ["broken of", "next"]);
}

#[test]
fn a_lowered_cap_cuts_what_is_there() {
    for lines in [500, 2_000, 9_000] {
        let mut desk = Desk::new();
        desk.restart(4 * CAP);
        let all = numbered(0..lines);
        for line in &all {
            desk.write(&[line.as_bytes()]);
        }
        desk.restart(CAP);
        desk.write(&[b"after"]);
        let (left_out, kept) = desk.marked();
        assert_eq!(kept[0], all[0], "{lines}");
        assert_eq!(kept.last().unwrap(), "after", "{lines}");
        // Where the head is cut within a line, that line has an end of its own.
        let missing = bytes_of(&all) + 6 - bytes_of(&kept);
        let left_out = left_out.unwrap_or(0);
        assert!(
            left_out == missing || left_out == missing + 1,
            "{lines}: {left_out} told, {missing} missing"
        );
    }
}

#[test]
fn a_tail_without_its_head_is_of_no_use() {
    let mut desk = Desk::new();
    for line in numbered(0..3_000) {
        desk.write(&[line.as_bytes()]);
    }
    fs::remove_file(&desk.log.kept.path).unwrap();
    desk.restart(CAP);
    desk.write(&[b"anew"]);
    assert_eq!(desk.lines(), ["anew"]);
}

#[test]
fn a_line_longer_than_a_file_runs_over_the_seam() {
    let mut desk = Desk::new();
    let long = [vec![b'a'; 60_000], vec![b'z'; 10]].concat();
    desk.write(&[b"first", &long, b"last"]);
    let (left_out, lines) = desk.marked();
    assert_eq!(lines[0], "first");
    assert_eq!(lines.last().unwrap(), "last");
    assert_eq!(left_out, Some(6 + 60_011 + 5 - bytes_of(&lines)));
    assert!(lines[1].ends_with("zzz"), "its end is there");
}

#[test]
fn a_failed_write_is_counted_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("not yet there");
    let mut log = CappedLog::new(LogFile::new(missing.join("engine.log")));
    let error = log.write([(&b"one"[..], 0), (b"two", 0)].into_iter(), 0).unwrap_err();
    assert_eq!((error.lost_lines, error.source.kind()), (2, io::ErrorKind::NotFound));
    fs::create_dir(&missing).unwrap();
    log.write([(&b"three"[..], 0)].into_iter(), 0).unwrap();
    log.write([(&b"four"[..], 0)].into_iter(), 0).unwrap();
    let text = fs::read_to_string(missing.join("engine.log")).unwrap();
    assert_eq!(text, "[serving-sentinel: 2 lines left out here]\nthree\nfour\n");
}

#[test]
fn lines_that_never_came_leave_a_hole_that_is_told() {
    let mut desk = Desk::new();
    desk.log.write([(&b"one"[..], 0)].into_iter(), 17).unwrap();
    desk.write(&[b"two"]);
    assert_eq!(desk.lines(), ["one", "[serving-sentinel: 17 lines left out here]", "two"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error_each_time() {
    let mut log = CappedLog::new(LogFile::new("/dev/full"));
    for _ in 0..3 {
        let error = log.write([(&b"one"[..], 0)].into_iter(), 0).unwrap_err();
        assert_eq!((error.lost_lines, error.source.kind()), (1, io::ErrorKind::StorageFull));
    }
}

#[test]
fn a_policy_that_leaves_no_room_is_refused() {
    let log = LogFile::new("engine.log");
    let refused = log.clone().with_cap_bytes(1000).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a cap of 1000 bytes has no room for a log; give 65536 or more"
    );
    for share in [0.0, 1.0, -1.0, f64::NAN] {
        let refused = log.clone().with_head_share(share).unwrap_err();
        assert!(refused.to_string().ends_with("give a number from 0.1 to 0.9"), "{refused}");
    }
    assert!(log.with_head_share(0.9).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn never_over_the_cap_and_never_a_byte_unaccounted_for(
        runs in prop::collection::vec(
            prop::collection::vec((1_u32..40_000, 1_usize..4), 0..8), 1..6
        ),
    ) {
        let mut desk = Desk::new();
        let mut given = 0;
        for run in runs {
            desk.restart(CAP);
            for (bytes, lines) in run {
                let line = vec![b'x'; NonZeroU32::new(bytes).unwrap().get() as usize];
                desk.write(&vec![&line[..]; lines]);
                given += (line.len() as u64 + 1) * lines as u64;
            }
        }
        let (left_out, lines) = desk.marked();
        prop_assert_eq!(given - bytes_of(&lines), left_out.unwrap_or(0));
    }
}
