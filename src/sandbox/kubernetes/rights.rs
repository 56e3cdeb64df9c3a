//! What this process may do in the namespace, as the server says.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::CALL;
use super::client::{self, Cluster};
use crate::config::KubernetesSection;
use crate::sandbox::SandboxError;

/// Verb, group, resource and subresource of each right that trials need.
const NEEDED: [(&str, &str, &str, &str); 12] = [
    ("create", "", "pods", ""),
    ("get", "", "pods", ""),
    ("list", "", "pods", ""),
    ("watch", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("get", "", "pods", "exec"),
    ("create", "", "pods", "exec"),
    ("create", "coordination.k8s.io", "leases", ""),
    ("get", "coordination.k8s.io", "leases", ""),
    ("list", "coordination.k8s.io", "leases", ""),
    ("patch", "coordination.k8s.io", "leases", ""),
    ("delete", "coordination.k8s.io", "leases", ""),
];

/// And the one that an image of our own needs beside them.
const LOGS: (&str, &str, &str, &str) = ("get", "", "pods", "log");

/// Those that are missing, as `verb resource`.
pub(super) async fn missing(cluster: &Cluster, options: &KubernetesSection) -> Result<Vec<String>, SandboxError> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let mut missing = Vec::new();
    let logs = options.runtime_image.is_some().then_some(LOGS);
    for (verb, group, resource, subresource) in NEEDED.into_iter().chain(logs) {
        let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(cluster.namespace.clone()),
                    verb: set(verb),
                    group: set(group),
                    resource: set(resource),
                    subresource: set(subresource),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let parameters = PostParams::default();
        let answered = client::call(CALL, || reviews.create(&parameters, &review)).await;
        let answered = answered.map_err(|refused| SandboxError::Engine {
            what: "the cluster does not say what is allowed",
            reason: refused.to_string(),
        })?;
        if !answered.status.is_some_and(|status| status.allowed) {
            let below = set(subresource).map_or_else(String::new, |name| format!("/{name}"));
            missing.push(format!("{verb} {resource}{below}"));
        }
    }
    Ok(missing)
}
