//! Jobs of 2 to 4 ranks.  Each test starts this program again under tutti-run (`TUTTI_RUN`, else from PATH),
//! where `rank_main` runs one case.

use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tutti::*;

fn job(case: &str, ranks: usize) -> Option<Output> {
    let run = std::env::var("TUTTI_RUN").unwrap_or_else(|_| "tutti-run".to_owned());
    let program = std::env::current_exe().unwrap();
    let output = Command::new(&run)
        .args(["--no-prefix", "--timeout", "60", "-n", &ranks.to_string()])
        .arg(program)
        .args(["--exact", "rank_main", "--nocapture"])
        .env("TUTTI_RUST_CASE", case)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: {run}: {error}");
            None
        }
    }
}

fn good(case: &str, ranks: usize) {
    if let Some(output) = job(case, ranks) {
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&text));
    }
}

type Case = (&'static str, fn(&ProcessGroup));

const CASES: &[Case] = &[
    ("collectives", collectives),
    ("uneven", uneven),
    ("dtypes", dtypes),
    ("owned", owned),
    ("borrowed", borrowed),
    ("messages", messages),
    ("groups", groups),
    ("coalesced", coalesced),
    ("ops", ops),
    ("errors", errors),
    ("mismatch", mismatch),
    ("lost", lost),
];

/// Runs the case of this job.  Does nothing in the program that starts the jobs.
#[test]
fn rank_main() {
    if let Ok(name) = std::env::var("TUTTI_RUST_CASE") {
        let (_, case) = CASES.iter().find(|(known, _)| *known == name).unwrap();
        case(&init("tcp").unwrap());
    }
}

#[test]
fn values() {
    for ranks in 2..=4 {
        good("collectives", ranks);
    }
    for case in ["uneven", "dtypes", "groups", "coalesced", "ops"] {
        good(case, 3);
    }
}

#[test]
fn started() {
    good("owned", 4);
    good("borrowed", 4);
    good("messages", 3);
}

#[test]
fn failures() {
    good("errors", 2);
    good("mismatch", 3);
    if let Some(output) = job("lost", 3) {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("survived"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}

// ---- cases, on every rank ----------------------------------------------------------------------

fn collectives(world: &ProcessGroup) {
    let (rank, n) = (world.rank(), world.size());
    let total = (n * (n + 1) / 2) as f64;
    let mut x = vec![rank as f64 + 1.0; 100];
    world.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    assert!(x.iter().all(|&v| v == total));
    let mut out = [0i32; 2];
    world.all_reduce_into(&mut out, &[rank as i32, -(rank as i32)], ReduceOp::Min).unwrap();
    assert_eq!(out, [0, 1 - n as i32]);
    let mut one = [rank as i64];
    world.broadcast(&mut one, n - 1).unwrap();
    assert_eq!(one, [n as i64 - 1]);
    let mut all = vec![0u16; n];
    world.all_gather_into(&mut all, &[rank as u16]).unwrap();
    assert_eq!(all, (0..n as u16).collect::<Vec<_>>());
    let mut turned = vec![0u16; n];
    world.all_to_all_single(&mut turned, &all).unwrap();
    assert_eq!(turned, vec![rank as u16; n]);
    let mut part = [0u16];
    world.reduce_scatter_tensor(&mut part, &all, ReduceOp::Sum).unwrap();
    assert_eq!(part, [(rank * n) as u16]);
    let mut scanned = [1u8];
    world.scan(&mut scanned, ReduceOp::Sum).unwrap();
    assert_eq!(scanned, [rank as u8 + 1]);
    world.exscan(&mut scanned, ReduceOp::Max).unwrap();
    assert_eq!(scanned, [(rank as u8).max(1)]);
    let mut sum = [1i8];
    world.reduce(&mut sum, 0, ReduceOp::Sum).unwrap();
    assert_eq!(sum, [if rank == 0 { n as i8 } else { 1 }]);
    let mut weighted = [2.0f32];
    world.call().factor(0.5).all_reduce(&mut weighted, ReduceOp::PremulSum).unwrap();
    assert_eq!(weighted, [n as f32]);
    world.barrier().unwrap();
    world.monitored_barrier().unwrap();
    let texts = world.all_gather_bytes(&vec![b'x'; rank]).unwrap();
    assert_eq!(texts.iter().map(Vec::len).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
    let text: &[u8] = if rank == 1 { b"hello" } else { b"" };
    assert_eq!(world.broadcast_bytes(text, 1).unwrap(), b"hello");
}

fn uneven(world: &ProcessGroup) {
    let (rank, n) = (world.rank(), world.size());
    let mut parts: Vec<Vec<f32>> = (0..n).map(|r| vec![-1.0; r]).collect(); // nothing from rank 0
    let mut list: Vec<&mut [f32]> = parts.iter_mut().map(|part| part.as_mut_slice()).collect();
    world.all_gather(&mut list, &vec![rank as f32; rank]).unwrap();
    assert!(parts.iter().enumerate().all(|(r, part)| part.iter().all(|&v| v == r as f32)));
    let inputs: Vec<&[f32]> = parts.iter().map(|part| part.as_slice()).collect();
    let mut mine = vec![0.0f32; rank];
    world.scatter(&mut mine, if rank == 0 { &inputs } else { &[] }, 0).unwrap();
    assert_eq!(mine, vec![rank as f32; rank]);
    world.reduce_scatter(&mut mine, &inputs, ReduceOp::Sum).unwrap();
    assert_eq!(mine, vec![(rank * n) as f32; rank]);
    let mut gathered: Vec<Vec<f32>> = (0..n).map(|r| vec![-1.0; r]).collect();
    let mut list: Vec<&mut [f32]> = gathered.iter_mut().map(|part| part.as_mut_slice()).collect();
    world.gather(if rank == 1 { &mut list } else { &mut [] }, &mine, 1).unwrap();
    assert!(rank != 1 || gathered[2] == [6.0, 6.0]);
    let sent = vec![rank as i32; (0..n).sum()];
    let mut received = vec![-1i32; n * rank];
    world.all_to_all_splits(&mut received, &sent, &vec![rank; n], &(0..n).collect::<Vec<_>>()).unwrap();
    assert!(received.chunks(rank.max(1)).enumerate().all(|(r, part)| part.iter().all(|&v| v == r as i32)));
    let ins: Vec<[i32; 1]> = (0..n).map(|r| [(10 * rank + r) as i32]).collect();
    let mut outs = vec![[0i32; 1]; n];
    let ins: Vec<&[i32]> = ins.iter().map(|part| part.as_slice()).collect();
    let mut list: Vec<&mut [i32]> = outs.iter_mut().map(|part| part.as_mut_slice()).collect();
    world.all_to_all(&mut list, &ins).unwrap();
    assert!(outs.iter().enumerate().all(|(r, part)| part[0] == (10 * r + rank) as i32));
}

fn dtypes(world: &ProcessGroup) {
    macro_rules! sums {
        ($($type:ty),*) => {$({
            let mut x = [(world.rank() + 1) as $type; 3];
            world.all_reduce(&mut x, ReduceOp::Sum).unwrap();
            assert_eq!(x, [6 as $type; 3], stringify!($type));
        })*};
    }
    sums!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
    let mut complex = [Complex { re: 1.0f32, im: -1.0 }];
    world.all_reduce(&mut complex, ReduceOp::Sum).unwrap();
    assert_eq!(complex, [Complex { re: 3.0, im: -3.0 }]);
    let mut wide = [Complex { re: 1.0f64, im: 2.0 }];
    world.all_reduce(&mut wide, ReduceOp::Avg).unwrap();
    assert_eq!(wide, [Complex { re: 1.0, im: 2.0 }]);
    let mut flags = [Bool8::from(world.rank() == 0)];
    world.all_reduce(&mut flags, ReduceOp::Bor).unwrap();
    assert!(bool::from(flags[0]));
    let (mut half, mut brain) = ([F16(0x3c00)], [BF16(0x3f80)]); // 1.0 each
    world.all_reduce(&mut half, ReduceOp::Sum).unwrap();
    world.all_reduce(&mut brain, ReduceOp::Sum).unwrap();
    assert_eq!((half, brain), ([F16(0x4200)], [BF16(0x4040)])); // 3.0
    let (mut e4, mut e5) = ([F8E4M3(0x38)], [F8E5M2(0x3c)]);
    world.all_reduce(&mut e4, ReduceOp::Max).unwrap();
    world.all_reduce(&mut e5, ReduceOp::Max).unwrap();
    assert_eq!((e4, e5), ([F8E4M3(0x38)], [F8E5M2(0x3c)]));
}

fn owned(world: &ProcessGroup) {
    let (rank, n) = (world.rank(), world.size());
    let first = world.async_all_reduce(vec![1.0f32; 1000], ReduceOp::Sum).unwrap();
    let second = world.async_broadcast(vec![rank as u64; 2].into_boxed_slice(), 1).unwrap();
    let shared: Arc<[i32]> = vec![rank as i32; 2].into();
    let third = world.async_all_gather_into(vec![0i32; 2 * n], shared.clone()).unwrap();
    let fourth = world.async_reduce_scatter_tensor(vec![0i32; 1], vec![rank as i32; n], ReduceOp::Sum).unwrap();
    assert_eq!(first.wait().unwrap(), vec![n as f32; 1000]);
    assert_eq!(*second.wait().unwrap(), [1, 1]);
    let (all, kept) = third.wait().unwrap();
    assert_eq!((all[2 * n - 1], &kept), (n as i32 - 1, &shared));
    assert_eq!(fourth.wait().unwrap().0, [(n * (n - 1) / 2) as i32]);
    for _ in 0..50 {
        drop(world.async_all_reduce(vec![1.0f32; 5000], ReduceOp::Sum).unwrap());
        // freed when they have ended
    }
    std::mem::forget(world.async_all_reduce(vec![1u8; 100], ReduceOp::Max).unwrap());
    let work = world.async_all_reduce(vec![1u8; 100], ReduceOp::Max).unwrap();
    assert!(work.wait_for(Duration::from_secs(60)).unwrap() && work.is_completed());
    assert!(work.sequence() > 50 && work.error().is_empty());
    let other = std::thread::spawn(move || work.wait().unwrap()); // another thread waits
    assert_eq!(other.join().unwrap(), vec![1; 100]);
    world.quiesce(None).unwrap();
}

fn borrowed(world: &ProcessGroup) {
    let n = world.size();
    let (mut a, mut b, input) = ([1.0f32; 64], vec![2i64; 8], [world.rank() as i64; 2]);
    let mut gathered = vec![0i64; 2 * n];
    let sum = scope(|scope| {
        let first = scope.all_reduce(world, a.as_mut_slice(), ReduceOp::Sum).unwrap();
        let second = scope.all_reduce(world, b.as_mut_slice(), ReduceOp::Max).unwrap();
        let _unwaited = scope.all_gather_into(world, gathered.as_mut_slice(), input.as_slice()).unwrap();
        std::mem::forget(second);
        let a = first.wait().unwrap();
        a[0] += 1.0;
        a.iter().sum::<f32>()
    });
    assert_eq!(sum, (64 * n + 1) as f32);
    assert_eq!((b, gathered[2 * n - 1]), (vec![2; 8], n as i64 - 1));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        scope(|scope| {
            let _work = scope.all_reduce(world, a.as_mut_slice(), ReduceOp::Max).unwrap();
            panic!("in the scope");
        })
    }));
    assert!(caught.is_err());
    world.barrier().unwrap();
}

fn messages(world: &ProcessGroup) {
    let (rank, n) = (world.rank(), world.size());
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    let receive = world.irecv(vec![0i32; 2], left, 7).unwrap();
    let send = world.isend(vec![rank as i32; 2], right, 7).unwrap();
    let (data, message) = receive.wait_message().unwrap();
    assert_eq!((data, message), (vec![left as i32; 2], Message { source: left, tag: 7, bytes: 8 }));
    send.wait().unwrap();
    let (out, mut back) = ([rank as u8; 5], [0u8; 5]);
    scope(|scope| {
        let receive = scope.irecv(world, back.as_mut_slice(), None, 1).unwrap();
        let send = scope.isend(world, out.as_slice(), left, 1).unwrap();
        assert_eq!(receive.wait_message().unwrap().1.source, right);
        send.wait().unwrap();
    });
    assert_eq!(back, [right as u8; 5]);
    let send = world.isend(vec![1u16, 2], right, 9).unwrap();
    assert_eq!(world.probe(Some(left), None).unwrap(), Message { source: left, tag: 9, bytes: 4 });
    let mut more = [0u16; 4];
    let message = world.recv_up_to(&mut more, None, None).unwrap();
    assert_eq!((more, message.bytes), ([1, 2, 0, 0], 4));
    send.wait().unwrap();
    if rank == 0 {
        world.send(&[1.5f64], 1, 3).unwrap();
        world.send_bytes(b"a sentence", 1, 4).unwrap();
    } else if rank == 1 {
        let mut x = [0.0f64];
        world.recv(&mut x, 0, 3).unwrap();
        assert_eq!((x, world.recv_bytes(Some(0), 4).unwrap()), ([1.5], b"a sentence".to_vec()));
    }
}

fn groups(world: &ProcessGroup) {
    let rank = world.rank();
    let odd = world.split(Some(rank as u32 % 2), 0).unwrap().unwrap();
    let mut x = [1];
    odd.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    assert_eq!(x, [odd.size() as i32]);
    assert_eq!(odd.global_rank(odd.rank()), Some(rank));
    assert_eq!(odd.group_rank(rank), Some(odd.rank()));
    assert!(world.split(None, 0).unwrap().is_none());
    let options = GroupOptions { name: Some("pair"), ..Default::default() };
    let pair = world.new_group(&[1, 0], &options).unwrap();
    assert_eq!(pair.is_some(), rank < 2);
    if let Some(pair) = pair {
        let mut x = [rank as u64];
        pair.call().group_rank().broadcast(&mut x, 0).unwrap();
        assert_eq!((x, pair.name().as_str()), ([1], "pair"));
    }
    assert_eq!(world.health().unwrap(), vec![RankState::Alive; world.size()]);
    assert!(world.backend() == "cpu:tcp" && world.describe().unwrap().contains("tcp"));
    assert_eq!(world.host(0), Some(0));
    world.barrier().unwrap();
    assert!(world.sequence() > 0 && !world.regroup_wanted());
    threads();
}

/// Ranks as threads, each with a group of its own.
fn threads() {
    let store = Store::memory().unwrap();
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            let store = store.clone();
            std::thread::spawn(move || {
                let group = ProcessGroup::create("tcp", &store, rank, 3, &GroupOptions::default()).unwrap();
                drop(store);
                let mut x = [rank as i32];
                group.all_reduce(&mut x, ReduceOp::Sum).unwrap();
                x[0]
            })
        })
        .collect();
    drop(store);
    assert!(ranks.into_iter().all(|rank| rank.join().unwrap() == 3));
}

fn coalesced(world: &ProcessGroup) {
    let n = world.size();
    let (mut a, mut b, mut c) = ([1.0f32; 4], [world.rank() as i64; 2], vec![0u8; n]);
    let mine = [world.rank() as u8];
    world
        .coalesce(|batch| {
            batch.all_reduce(&mut a, ReduceOp::Sum)?;
            batch.broadcast(&mut b, 2)?;
            batch.all_gather_into(&mut c, &mine)?;
            let refused = world.barrier().unwrap_err();
            assert!(refused.message().contains("coalesce"));
            assert!(world.async_all_reduce(vec![1.0f32], ReduceOp::Sum).is_err());
            Ok(())
        })
        .unwrap();
    assert_eq!((a, b, c), ([n as f32; 4], [2; 2], vec![0, 1, 2]));
    let failed: Result<()> = world.coalesce(|batch| {
        batch.all_reduce(&mut a, ReduceOp::Max)?;
        batch.broadcast(&mut b, 99)
    });
    assert_eq!(failed.unwrap_err().status(), Status::InvalidArgument);
    world.barrier().unwrap();
}

fn ops(world: &ProcessGroup) {
    let larger = UserOp::new("larger magnitude", true, |inout: &mut [f32], input: &[f32]| {
        for (a, b) in inout.iter_mut().zip(input) {
            if b.abs() > a.abs() {
                *a = *b;
            }
        }
    })
    .unwrap();
    let mut x = [-(world.rank() as f32), 0.5];
    world.all_reduce(&mut x, &larger).unwrap();
    assert_eq!(x, [1.0 - world.size() as f32, 0.5]);
    let work = world.async_all_reduce(vec![world.rank() as f32; 10_000], &larger).unwrap();
    drop(larger); // the operation goes on
    assert_eq!(work.wait().unwrap()[9999], world.size() as f32 - 1.0);
    // Matrices of 2 by 2 do not commute; here: keep the first element in rank order.
    let first = UserOp::new("first", false, |inout: &mut [i32], input: &[i32]| inout.copy_from_slice(input)).unwrap();
    let mut x = [world.rank() as i32 + 7];
    world.scan(&mut x, first).unwrap();
    assert_eq!(x, [7]);
}

fn errors(world: &ProcessGroup) {
    let error = init("tcp").map(|_| ()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let error = world.broadcast(&mut [1.0f32], 99).unwrap_err();
    assert!(error.status() == Status::InvalidArgument && error.to_string().contains("99"));
    let error = world.all_reduce(&mut [1.0f32], ReduceOp::Bxor).unwrap_err();
    assert!(error.status() == Status::Unsupported && error.message().contains("float32"));
    let error = world.all_to_all_splits(&mut [0u8; 2], &[0u8; 2], &[1], &[1, 1]).unwrap_err();
    assert!(error.message().contains("out_splits has 1 entries, but the group has 2 ranks"));
    assert!(UserOp::new("", true, |_: &mut [u8], _: &[u8]| {}).is_err());
    assert!(!is_backend_available("gloo") && is_backend_available("tcp"));
    if world.rank() == 0 {
        let error = world.call().timeout(Duration::from_millis(100)).recv(&mut [0u8], 1, 0).unwrap_err();
        assert_eq!(error.status(), Status::Timeout);
        let work = world.irecv(vec![0u8], 1, 5).unwrap();
        assert!(!work.wait_for(Duration::from_millis(20)).unwrap());
        world.barrier().unwrap();
        assert_eq!(work.wait().unwrap(), [9]);
    } else {
        world.barrier().unwrap();
        world.send(&[9u8], 0, 5).unwrap();
    }
}

fn mismatch(world: &ProcessGroup) {
    let n = 3 + usize::from(world.rank() == 1);
    let error = match world.async_all_reduce(vec![1.0f32; n], ReduceOp::Sum) {
        Ok(work) => {
            let (buffer, result) = work.wait_parts();
            assert_eq!(buffer.len(), n);
            result.unwrap_err()
        }
        Err(error) => error, // the others have found it already
    };
    assert!(matches!(error.status(), Status::Mismatch | Status::Aborted), "{error}");
    assert_eq!(world.barrier().unwrap_err().status(), Status::Aborted);
}

extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}

fn lost(world: &ProcessGroup) {
    // SAFETY: ignores SIGTERM, which tutti-run sends to the survivors
    unsafe { signal(15, 1) };
    world.barrier().unwrap();
    if world.rank() == 1 {
        std::process::abort();
    }
    let error = world.barrier().unwrap_err();
    assert_eq!(error.status(), Status::PeerLost, "{error}");
    println!("survived");
}
