use stanchion_http::Head;

use super::*;
use crate::request::Body;
use crate::rig::peer;

fn ticket(woken: &Rc<Woken>) -> Ticket {
    let request = Request {
        head: Head::of("GET", "/", &[]),
        body: Body::Empty,
        peer: Rc::new(peer()),
        scheme: "http",
        id: None,
        proxy_us: None,
        request_start_us: None,
        websocket: None,
        takes_hints: false,
        started_us: 0,
        arrived_us: 0,
    };
    Ticket::new(request, None, 7, woken)
}

fn notes(woken: &Woken) -> Vec<u32> {
    let mut notes = Vec::new();
    woken.take(&mut notes);
    notes
}

#[test]
fn news_wakes_a_connection_once_until_it_looks() {
    let woken = Rc::default();
    let ticket = ticket(&woken);
    for _ in 0..2 {
        ticket.wake();
        ticket.wake();
        assert_eq!(notes(&woken), [7]);
        ticket.seen();
    }
}

#[test]
fn a_look_for_a_connection_gives_the_news_and_leaves_no_note() {
    let woken = Rc::default();
    let ticket = ticket(&woken);
    assert!(!ticket.has_news_after(|| ()));
    assert!(ticket.has_news_after(|| ticket.refuse(Refusal::NoAnswer)));
    assert!(notes(&woken).is_empty());
    // Later news wakes the connection.
    ticket.wake();
    assert_eq!(notes(&woken), [7]);
    assert!(ticket.take_answer().is_some());
}
