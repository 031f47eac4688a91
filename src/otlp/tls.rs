//! TLS for both transports: the system's certificates, or the files that the `OTEL_*` variables
//! name.
//!
//! gRPC and HTTP take their TLS settings in different forms; here both come from the same files,
//! read once.

use std::sync::Arc;

use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::OtlpError;
use super::route::{NamedPath, Route};

/// TLS settings for gRPC.
pub(super) fn for_grpc(route: &Route) -> Result<ClientTlsConfig, OtlpError> {
    let mut config = match &route.authority {
        Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(file)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((certificate, key)) = &route.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(config)
}

/// TLS settings for HTTP. The cryptography is named here, so that the process's default need not be
/// set.
pub(super) fn for_http(route: &Route) -> Result<ClientConfig, OtlpError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| OtlpError::Tls { reason: error.to_string() })?
        .with_root_certificates(roots(route)?);
    let Some((certificate, key)) = &route.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate)?;
    let private =
        PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| unusable(key, &error))?;
    builder.with_client_auth_cert(chain, private).map_err(|error| unusable(key, &error))
}

fn roots(route: &Route) -> Result<RootCertStore, OtlpError> {
    let mut roots = RootCertStore::empty();
    if !route.is_secure() {
        return Ok(roots);
    }
    if let Some(file) = &route.authority {
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| unusable(file, &error))?;
        }
        return Ok(roots);
    }
    // A system's store holds the odd certificate that cannot be read; that is no reason to trust
    // none of them.
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        let reason = "the system has no trusted certificates; install them, or name a file in \
                      OTEL_EXPORTER_OTLP_CERTIFICATE";
        return Err(OtlpError::Tls { reason: reason.to_owned() });
    }
    Ok(roots)
}

fn certificates(file: &NamedPath) -> Result<Vec<CertificateDer<'static>>, OtlpError> {
    let pem = read(file)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(file, &error))?;
    if all.is_empty() {
        Err(unusable(file, &"no certificate in PEM form is in it"))
    } else {
        Ok(all)
    }
}

fn read(file: &NamedPath) -> Result<Vec<u8>, OtlpError> {
    std::fs::read(&file.path).map_err(|error| unusable(file, &error))
}

fn unusable(file: &NamedPath, reason: &dyn std::fmt::Display) -> OtlpError {
    OtlpError::File {
        variable: file.variable.clone(),
        path: file.path.clone(),
        reason: reason.to_string(),
    }
}
