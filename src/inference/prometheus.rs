//! Numbers out of a Prometheus text, looked up tolerantly: names change between releases of a server.

/// A metrics page.
pub(super) struct Metrics<'t>(pub(super) &'t str);

impl Metrics<'_> {
    /// The sum over all label sets of the first of these metrics that is there.
    pub(super) fn sum(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| {
            let values: Vec<f64> = self.samples(name).filter_map(|(_, value)| value.parse().ok()).collect();
            (!values.is_empty()).then(|| values.iter().sum())
        })
    }

    /// The value of a label, in the first sample of this metric.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<f64> {
        let (labels, _) = self.samples(name).next()?;
        let at = labels.find(&format!("{label}=\""))? + label.len() + 2;
        labels[at..].split('"').next()?.parse().ok()
    }

    fn samples<'s>(&'s self, name: &'s str) -> impl Iterator<Item = (&'s str, &'s str)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(labelled) => labelled.rsplit_once('}')?,
                None => ("", rest.starts_with(' ').then_some(rest)?),
            };
            Some((labels, value.split_whitespace().next()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn samples_are_found_by_whole_name_and_summed() {
        let page = Metrics(
            "# HELP a x\nv:run{engine=\"0\"} 2.0\nv:run{engine=\"1\"} 3.0\nv:run_total{engine=\"0\"} 7\nplain 1e3\n\
             v:info{block_size=\"16\",num_gpu_blocks=\"100\"} 1.0\n",
        );
        assert_eq!(page.sum(&["v:absent", "v:run"]), Some(5.0));
        assert_eq!(page.sum(&["plain"]), Some(1000.0));
        assert_eq!(page.sum(&["v:ru"]), None);
        assert_eq!(page.label("v:info", "num_gpu_blocks"), Some(100.0));
    }
}
