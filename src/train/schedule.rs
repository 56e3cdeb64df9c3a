//! The course of the learning rate over the steps of a run.

use crate::config::{SchedulerName, TrainSection};

/// A course that would stop learning, or never start.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ScheduleError {
    /// The rate itself.
    #[error("train.lr is {0}; expected a finite number above 0")]
    Rate(f64),
    /// Warm-up as long as the run.
    #[error(
        "train.warmup is {warmup} and train.steps is {steps}: with scheduler {scheduler:?} no step is left between \
         warm-up and a learning rate of 0; lower warmup or raise steps"
    )]
    AllWarmup {
        /// Steps of warm-up.
        warmup: u32,
        /// Steps of the run.
        steps: u32,
        /// The course.
        scheduler: SchedulerName,
    },
    /// A step beyond the end of a falling course.
    #[error(
        "step {step} is beyond train.steps = {steps}, where scheduler {scheduler:?} has reached a learning rate of 0; \
         raise train.steps or use scheduler = \"constant\""
    )]
    Ended {
        /// The step asked for.
        step: u64,
        /// Steps of the run.
        steps: u32,
        /// The course.
        scheduler: SchedulerName,
    },
}

/// Learning rate as a function of the trainer step; above 0 at each step it is defined for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    lr: f64,
    scheduler: SchedulerName,
    warmup: u32,
    steps: u32,
}

impl Schedule {
    /// The course that `[train]` describes.
    pub fn from_section(section: &TrainSection) -> Result<Self, ScheduleError> {
        let TrainSection {
            lr,
            scheduler,
            warmup,
            steps,
            ..
        } = *section;
        if !lr.is_finite() || lr <= 0.0 {
            return Err(ScheduleError::Rate(lr));
        }
        if scheduler != SchedulerName::Constant && warmup >= steps {
            return Err(ScheduleError::AllWarmup {
                warmup,
                steps,
                scheduler,
            });
        }
        Ok(Self {
            lr,
            scheduler,
            warmup,
            steps,
        })
    }

    /// Learning rate of step `step` (the first is 1).
    ///
    /// Warm-up rises linearly and reaches the full rate at step `warmup`; a falling course starts at the
    /// full rate in the step after that and would reach 0 in step `steps + 1`.
    pub fn at(&self, step: u64) -> Result<f64, ScheduleError> {
        let (warmup, steps) = (u64::from(self.warmup), u64::from(self.steps));
        if step <= warmup {
            return Ok(self.lr * step.max(1) as f64 / warmup.max(1) as f64);
        }
        let falling = |left: fn(f64) -> f64| {
            if step > steps {
                return Err(ScheduleError::Ended {
                    step,
                    steps: self.steps,
                    scheduler: self.scheduler,
                });
            }
            Ok(self.lr * left((step - warmup - 1) as f64 / (steps - warmup) as f64))
        };
        match self.scheduler {
            SchedulerName::Constant => Ok(self.lr),
            SchedulerName::Linear => falling(|progress| 1.0 - progress),
            SchedulerName::Cosine => falling(|progress| 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn section(scheduler: SchedulerName, warmup: u32, steps: u32) -> TrainSection {
        TrainSection {
            lr: 1.0,
            scheduler,
            warmup,
            steps,
            ..TrainSection::default()
        }
    }

    fn rates(scheduler: SchedulerName, warmup: u32, steps: u32) -> Vec<f64> {
        let schedule = Schedule::from_section(&section(scheduler, warmup, steps)).unwrap();
        (1..=u64::from(steps)).map(|step| schedule.at(step).unwrap()).collect()
    }

    #[test]
    fn courses_by_hand() {
        assert_eq!(rates(SchedulerName::Constant, 2, 4), [0.5, 1.0, 1.0, 1.0]);
        assert_eq!(rates(SchedulerName::Linear, 0, 4), [1.0, 0.75, 0.5, 0.25]);
        assert_eq!(rates(SchedulerName::Linear, 2, 4), [0.5, 1.0, 1.0, 0.5]);
        let cosine = rates(SchedulerName::Cosine, 0, 2);
        assert!(
            (cosine[0] - 1.0).abs() < 1e-12 && (cosine[1] - 0.5).abs() < 1e-12,
            "{cosine:?}"
        );
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        let zero = TrainSection {
            lr: 0.0,
            ..TrainSection::default()
        };
        assert_eq!(Schedule::from_section(&zero), Err(ScheduleError::Rate(0.0)));
        assert!(Schedule::from_section(&section(SchedulerName::Cosine, 4, 4)).is_err());
        let linear = Schedule::from_section(&section(SchedulerName::Linear, 0, 4)).unwrap();
        assert!(
            linear
                .at(5)
                .unwrap_err()
                .to_string()
                .contains("step 5 is beyond train.steps = 4")
        );
    }

    proptest! {
        #[test]
        fn the_rate_stays_above_zero_and_below_the_peak(
            kind in 0..3_usize, warmup in 0..50_u32, more in 1..100_u32,
        ) {
            let kind = [SchedulerName::Constant, SchedulerName::Linear, SchedulerName::Cosine][kind];
            for rate in rates(kind, warmup, warmup + more) {
                prop_assert!(rate > 0.0 && rate <= 1.0, "{rate}");
            }
        }
    }
}
