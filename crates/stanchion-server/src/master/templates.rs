//! The template that forks workers, and the one that is to follow it.
//!
//! A template is known by its generation of the code, which is never given twice to two loads:
//! what a template that was given up still says cannot be taken for its successor's word.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGKILL;

use super::backoff::Backoff;
use super::event::Action;
use super::stage::Stage;

#[derive(Debug)]
pub(super) struct Template {
    pub(super) stage: Stage,
    pub(super) generation: u32,
}

#[derive(Debug)]
pub(super) struct Templates {
    /// The one whose code is served.
    present: Template,
    /// One with newer code that is still loading it.
    next: Option<Template>,
    /// The generation last given.
    generations: u32,
    /// Another reload was asked for while one was under way: what that one loads may be older
    /// than what is meant.
    again: bool,
    backoff: Backoff,
}

/// Whose end it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The present one's, which was ready or was not.
    Present { was_ready: bool },
    /// That of the one to come: the old code goes on serving.
    Next,
}

impl Templates {
    /// The first generation, to be forked.
    pub(super) fn new() -> Self {
        Self {
            present: Template {
                stage: Stage::Wanted,
                generation: 1,
            },
            next: None,
            generations: 1,
            again: false,
            backoff: Backoff::default(),
        }
    }

    pub(super) fn present(&self) -> &Template {
        &self.present
    }

    /// Whether none runs or is about to.
    pub(super) fn are_gone(&self) -> bool {
        self.present.stage == Stage::Wanted && self.next.is_none()
    }

    /// Loads the app anew beside the present template; after the load under way, if there is one.
    pub(super) fn reload(&mut self, actions: &mut Vec<Action>) {
        if let Some(next) = &self.next {
            let generation = next.generation;
            actions.push(Action::info(format!(
                "reload: generation {generation} is still loading, another one follows it"
            )));
            self.again = true;
            return;
        }
        self.again = false;
        self.generations += 1;
        let generation = self.generations;
        actions.push(Action::info(format!(
            "reload: loading the app anew, generation {generation}"
        )));
        self.next = Some(Template {
            stage: Stage::Asked,
            generation,
        });
        actions.push(Action::ForkTemplate { generation });
    }

    /// Begins the reload that was asked for during one that is over now.
    pub(super) fn follow_up(&mut self, actions: &mut Vec<Action>) {
        if self.again && self.next.is_none() {
            self.reload(actions);
        }
    }

    pub(super) fn on_forked(
        &mut self,
        now_ms: u64,
        generation: u32,
        pid: Option<i32>,
        actions: &mut Vec<Action>,
    ) {
        let asked = |template: &Template| {
            template.generation == generation && template.stage == Stage::Asked
        };
        if let Some(next) = self.next.take_if(|next| asked(next)) {
            match pid {
                Some(pid) => {
                    self.next = Some(Template {
                        stage: Stage::Booting { pid },
                        ..next
                    });
                }
                None => actions.push(Action::error(
                    "reload failed: there is no new template; the old code goes on serving",
                )),
            }
        } else if asked(&self.present) {
            self.present.stage = Stage::forked(pid);
            if pid.is_none() {
                self.backoff.failed(now_ms);
            }
        } else if let Some(pid) = pid {
            // A newer one took its place before we knew of it.
            actions.push(Action::Kill(pid, SIGKILL));
        }
    }

    /// True if another template has become the present one.
    pub(super) fn on_ready(&mut self, generation: u32, actions: &mut Vec<Action>) -> bool {
        let loaded = |template: &Template| match template.stage {
            Stage::Booting { pid } if template.generation == generation => Some(pid),
            _ => None,
        };
        if let Some(pid) = loaded(&self.present) {
            self.present.stage = Stage::Ready { pid };
        } else if let Some(pid) = self.next.as_ref().and_then(loaded) {
            if let Some(old) = self.present.stage.kill() {
                actions.push(Action::Kill(old, SIGKILL));
            }
            actions.push(Action::DropTemplate {
                generation: self.present.generation,
            });
            self.present = Template {
                stage: Stage::Ready { pid },
                generation,
            };
            self.next = None;
            self.backoff = Backoff::default();
            return true;
        }
        false
    }

    /// The present one has forked a worker: all is well with it.
    pub(super) fn has_forked(&mut self) {
        self.backoff = Backoff::default();
    }

    /// If `pid` is one of them, which: it has ended.
    pub(super) fn on_reaped(
        &mut self,
        pid: i32,
        exit: Exit,
        actions: &mut Vec<Action>,
    ) -> Option<Ended> {
        if self.present.stage.pid() == Some(pid) {
            let was_ready = self.present.stage.is_ready();
            self.present.stage = Stage::Wanted;
            return Some(Ended::Present { was_ready });
        }
        let next = self.next.take_if(|next| next.stage.pid() == Some(pid))?;
        if next.stage != (Stage::Killed { pid }) {
            actions.push(Action::error(format!(
                "reload failed: the new template {exit}; the old code goes on serving"
            )));
        }
        actions.push(Action::DropTemplate {
            generation: next.generation,
        });
        Some(Ended::Next)
    }

    /// The present one has ended and should not have; gives how long to wait for the next try.
    pub(super) fn back_off(&mut self, now_ms: u64) -> u64 {
        self.backoff.failed(now_ms);
        self.backoff.wait_ms(now_ms)
    }

    /// Forks the present one if it is not there.
    pub(super) fn keep(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.present.stage == Stage::Wanted && self.backoff.is_over(now_ms) {
            self.present.stage = Stage::Asked;
            let generation = self.present.generation;
            actions.push(Action::ForkTemplate { generation });
        }
    }

    /// When [`Self::keep`] has something to do.
    pub(super) fn due_ms(&self) -> Option<u64> {
        (self.present.stage == Stage::Wanted).then(|| self.backoff.not_before_ms())
    }

    /// Kills them: they hold nothing of a client's.
    pub(super) fn kill_all(&mut self, actions: &mut Vec<Action>) {
        let all = [Some(&mut self.present), self.next.as_mut()];
        for template in all.into_iter().flatten() {
            if let Some(pid) = template.stage.kill() {
                actions.push(Action::Kill(pid, SIGKILL));
            }
        }
    }
}
