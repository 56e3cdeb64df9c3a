//! Which group this rollouter works on next: one that nobody has, or that one had who is dead.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::buffer::meeting::{Meeting, Published, Pulse};
use crate::config::RunConfig;
use crate::pipeline::asynchronous::{Drawn, SILENCE};
use crate::pipeline::group_order::GroupOrder;
use crate::pipeline::sampled::Durable;
use crate::pipeline::{PipelineError, TaskSet, plans};
use crate::trajectory::GroupId;

/// How often it is looked whether those live who have groups.
const LOOK: Duration = Duration::from_secs(10);

/// The tasks of the run.
pub(super) struct Tasks<'a> {
    pub config: &'a RunConfig,
    pub set: &'a TaskSet,
}

/// A group by its number.
#[derive(Debug, Clone)]
struct Place {
    number: u64,
    step: u32,
    /// Of the task in the index.
    task: usize,
    /// Rollouters that had it before, as far as is known.
    taken_over: u32,
}

/// Groups in their order, those that others have set aside.
pub(super) struct Claims<'a> {
    meeting: &'a Meeting,
    order: GroupOrder,
    me: &'a str,
    /// The next step, the task that it begins with, and the number of its first group.
    next: (u32, u64, u64),
    ready: VecDeque<Place>,
    /// What others work on.
    others: Vec<(Place, String)>,
    pulse: Pulse,
    looked: Instant,
}

impl<'a> Claims<'a> {
    pub(super) fn new(meeting: &'a Meeting, order: GroupOrder, me: &'a str, first: &Published) -> Self {
        Self {
            meeting,
            order,
            me,
            next: (first.settled_step + 1, first.cursor, first.settled_groups),
            ready: VecDeque::new(),
            others: Vec::new(),
            pulse: Pulse::new(SILENCE),
            looked: Instant::now(),
        }
    }

    /// The next group that is this rollouter's, with what is there of it already; `None` where none may begin now.
    pub(super) async fn next(&mut self, tasks: &Tasks<'_>, said: &Published) -> Result<Option<Drawn>, PipelineError> {
        if let Some(group) = self.inherit(tasks, said).await? {
            return Ok(Some(group));
        }
        loop {
            if self.ready.is_empty() && !self.begin_step() {
                return Ok(None);
            }
            let Some(place) = self
                .ready
                .front()
                .filter(|place| place.number < said.begin_below)
                .cloned()
            else {
                return Ok(None);
            };
            self.ready.pop_front();
            if place.number < said.settled_groups {
                continue;
            }
            if let Some(group) = self.take(tasks, place).await? {
                return Ok(Some(group));
            }
        }
    }

    /// Tries to get a group that is not complete.
    async fn take(&mut self, tasks: &Tasks<'_>, mut place: Place) -> Result<Option<Drawn>, PipelineError> {
        loop {
            let owner = self.meeting.claim(place.number, place.taken_over, self.me).await?;
            if owner == self.me {
                let group = self.drawn(tasks, &place).await?;
                return Ok(Some(group).filter(|group| !group.plans.is_empty()));
            }
            if self.lives(&owner).await? {
                self.others.push((place, owner));
                return Ok(None);
            }
            place.taken_over += 1;
        }
    }

    /// Looks, now and then, at what others work on: what one had who is dead is taken over.
    async fn inherit(&mut self, tasks: &Tasks<'_>, said: &Published) -> Result<Option<Drawn>, PipelineError> {
        self.others.retain(|(place, _)| place.number >= said.settled_groups);
        if self.looked.elapsed() < LOOK {
            return Ok(None);
        }
        for (place, owner) in std::mem::take(&mut self.others) {
            if self.lives(&owner).await? {
                self.others.push((place, owner));
            } else {
                let place = Place {
                    taken_over: place.taken_over + 1,
                    ..place
                };
                self.ready.push_front(place);
            }
        }
        self.looked = Instant::now();
        let inherited = self.ready.front().filter(|place| place.taken_over > 0).cloned();
        let Some(place) = inherited else { return Ok(None) };
        self.ready.pop_front();
        self.take(tasks, place).await
    }

    async fn lives(&mut self, name: &str) -> Result<bool, PipelineError> {
        let found = self.meeting.rollouter(name).await?;
        Ok(found.is_some_and(|one| !one.ended && self.pulse.beats(name, one.beat)))
    }

    async fn drawn(&self, tasks: &Tasks<'_>, place: &Place) -> Result<Drawn, PipelineError> {
        let entry = &tasks.set.tasks[place.task];
        let mut plans = plans::training(tasks.config, entry, place.step);
        let known = Durable::of_meeting(self.meeting, place.step).await?.take(&mut plans);
        Ok(Drawn {
            id: GroupId::training(&entry.task.id, place.step),
            plans,
            known,
        })
    }

    fn begin_step(&mut self) -> bool {
        let (step, cursor, number) = self.next;
        let (picked, after) = self.order.tasks_of(cursor);
        self.next = (step + 1, after, number + picked.len() as u64);
        self.ready
            .extend(picked.iter().zip(number..).map(|(&task, number)| Place {
                number,
                step,
                task,
                taken_over: 0,
            }));
        if picked.is_empty() {
            self.next = (step, cursor, number);
        }
        !picked.is_empty()
    }
}
