//! What is done with images apart from trials: they are made be there, looked for, and pushed to a registry.

use std::path::PathBuf;

use super::{DockerBackend, Image, SandboxError, answer, images};

impl DockerBackend {
    /// Makes the image be there before a sandbox asks for it.
    ///
    /// # Errors
    /// When it could not be pulled or built.
    pub async fn fetch(&self, image: &Image) -> Result<(), SandboxError> {
        self.images.get(self.client().await?, image).await.map(drop)
    }

    /// The image's name in the engine's store, which for one that is built tells its content, and whether it is there.
    ///
    /// # Errors
    /// When the engine does not answer, or the folder of a build cannot be read.
    pub async fn look(&self, image: &Image) -> Result<(String, bool), SandboxError> {
        let (name, there) = self.images.look(self.client().await?, image).await?;
        Ok((name.to_string(), there))
    }

    /// Pushes the image to a registry as `name`, without a tag (so that it is `latest`), with the credentials of
    /// `docker login`; gives the digest under which it lies there.
    ///
    /// # Errors
    /// When the image is not to be had, or the registry does not take it.
    pub async fn push(&self, image: &Image, name: &str) -> Result<String, SandboxError> {
        self.images.push(self.client().await?, image, name).await
    }

    /// The digest that a registry has under `name`, without a tag, as far as the engine can tell.
    ///
    /// # Errors
    /// When no engine answers.
    pub async fn digest_at(&self, name: &str) -> Result<Option<String>, SandboxError> {
        Ok(images::digest_at(self.client().await?, name).await)
    }

    /// Whether the engine still answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn answers(&self) -> Result<(), SandboxError> {
        let answered = answer(self.client().await?.ping()).await;
        answered.map(drop).map_err(|reason| SandboxError::Engine {
            what: "the container engine does not answer any more",
            reason,
        })
    }

    /// The file that holds what the engine said while it built the image of this name in its store, where that is kept.
    pub fn build_log(&self, name: &str) -> Option<PathBuf> {
        self.images.build_log(name).filter(|path| path.is_file())
    }
}
