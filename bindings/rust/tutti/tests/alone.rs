//! What needs no other ranks: stores, conversions, and a world of one.

use std::time::Duration;

use tutti::*;

#[test]
fn stores() {
    let options = TcpOptions { server: true, token: Some([7; 32]), ..Default::default() };
    let server = Store::tcp("127.0.0.1", 0, &options).unwrap();
    let client = Store::tcp("127.0.0.1", server.port(), &TcpOptions { server: false, ..options }).unwrap();
    client.set("key", b"\0value").unwrap();
    client.append("key", b"s").unwrap();
    assert_eq!(server.get("key", None).unwrap(), b"\0values");
    assert_eq!(client.add("n", 5).unwrap() + client.add("n", -2).unwrap(), 8);
    assert_eq!(client.multi_get(&["n", "key"], None).unwrap(), [b"3".to_vec(), b"\0values".to_vec()]);
    assert!(client.check(&["key"]).unwrap() && !client.check(&["key", "other"]).unwrap());
    client.wait(&["key"], None).unwrap();
    assert!(client.compare_set("n", b"3", b"4").unwrap() && !client.compare_set("n", b"3", b"5").unwrap());
    let view = client.prefix("p").unwrap();
    view.set("q", b"").unwrap();
    assert_eq!((client.get("p/q", None).unwrap(), view.num_keys().unwrap()), (vec![], 1));
    assert!(client.delete("key").unwrap() && !client.delete("key").unwrap());
    assert_eq!(client.try_get("key").unwrap(), None);
    let error = client.get("key", Some(Duration::from_millis(20))).unwrap_err();
    assert!(error.status() == Status::Timeout && error.message().contains("key"));
    client.barrier("all", 1, None).unwrap();
    assert_eq!(client.set("a\0b", b"").unwrap_err().status(), Status::InvalidArgument);
    let stranger = TcpOptions { token: Some([8; 32]), timeout: Some(Duration::from_secs(5)), ..Default::default() };
    assert_eq!(Store::tcp("127.0.0.1", server.port(), &stranger).map(|_| ()).unwrap_err().status(), Status::Auth);
}

#[test]
fn regroup_of_one() {
    let store = Store::memory().unwrap();
    let mut group = ProcessGroup::create("tcp", &store, 0, 1, &GroupOptions::default()).unwrap();
    let child = group.split(Some(0), 0).unwrap();
    assert_eq!(group.regroup(None).unwrap_err().status(), Status::InvalidArgument);
    drop(child);
    group.regroup(None).unwrap();
    let mut x = [4u8];
    group.all_reduce(&mut x, ReduceOp::Sum).unwrap();
    assert_eq!((x, group.size()), ([4], 1));
}

#[test]
fn a_group_outlives_its_parent() {
    let store = Store::memory().unwrap();
    let group = ProcessGroup::create("tcp", &store, 0, 1, &GroupOptions::default()).unwrap();
    let child = group.split(Some(0), 0).unwrap().unwrap();
    drop((group, store));
    child.barrier().unwrap();
    child.abort("the end").unwrap();
    let error = child.barrier().unwrap_err();
    assert!(error.status() == Status::Aborted && error.message().contains("the end"));
}

#[test]
fn texts() {
    assert!(version().starts_with("0."));
    let error = ProcessGroup::init(&InitOptions { backend: Some("gloo"), ..Default::default() }).map(|_| ());
    let error = error.unwrap_err();
    assert_eq!(error.status(), Status::Backend);
    assert!(error.to_string().starts_with("Backend: ") && error.message().contains("gloo"));
}

#[test]
fn types_are_send() {
    fn send<T: Send + Sync>() {}
    send::<ProcessGroup>();
    send::<Store>();
    send::<Work<'static, Vec<f32>>>();
    send::<UserOp<f32>>();
}
