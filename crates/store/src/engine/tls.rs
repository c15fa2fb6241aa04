//! Encryption of PostgreSQL connections, with the parameters of PostgreSQL's own clients: `sslmode` sets the level of
//! verification, `sslrootcert` the trusted authorities.

use std::{
    borrow::Cow,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Socket,
    config::SslMode,
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::{self, WebPkiSupportedAlgorithms},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    },
};

/// Value of `sslrootcert` that selects the public authorities that browsers trust.
const PUBLIC_ROOTS: &str = "system";

/// The required level of encryption and verification, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TlsLevel {
    Disable,
    Prefer,
    Require,
    /// A trusted authority must have signed the certificate of the server.
    VerifyCa,
    /// In addition, the certificate must be for this host name.
    VerifyFull,
}

/// The encryption parameters of a URL.
#[derive(Debug, Default)]
pub(crate) struct TlsParameters {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
}

/// The encryption settings of a connection.
#[derive(Clone)]
pub(crate) struct Encryption {
    level: TlsLevel,
    /// Absent if encryption is disabled.
    client: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Encryption").field(&self.level).finish()
    }
}

impl Encryption {
    /// Separates the encryption parameters of a URL from those of the driver, which are returned as URL text.
    pub(crate) fn split(all: Vec<(&str, String, &str)>) -> (TlsParameters, String) {
        let mut parameters = TlsParameters::default();
        let mut driver_parameters = Vec::new();
        for (key, value, text) in all {
            match key {
                "sslmode" => parameters.sslmode = Some(value),
                "sslrootcert" => parameters.sslrootcert = Some(value),
                "sslcert" => parameters.sslcert = Some(value),
                "sslkey" => parameters.sslkey = Some(value),
                _ => driver_parameters.push(text),
            }
        }
        (parameters, driver_parameters.join("&"))
    }

    pub(crate) fn new(parameters: TlsParameters) -> Result<Self, String> {
        let level = match (parameters.sslmode.as_deref(), parameters.sslrootcert.as_deref()) {
            // Public authorities certify every server, so only the host name proves the identity of the
            // server.
            (None, Some(PUBLIC_ROOTS)) | (Some("verify-full"), _) => TlsLevel::VerifyFull,
            // As in PostgreSQL's own clients, `require` with a root certificate verifies the certificate.
            (Some("require"), Some(_)) | (Some("verify-ca"), _) => TlsLevel::VerifyCa,
            (None | Some("prefer"), _) => TlsLevel::Prefer,
            (Some("require"), None) => TlsLevel::Require,
            (Some("disable"), _) => TlsLevel::Disable,
            (Some(_), _) => return Err("sslmode must be disable, prefer, require, verify-ca or verify-full".into()),
        };
        let client = (level > TlsLevel::Disable).then(|| client_config(level, &parameters)).transpose()?;
        Ok(Self { level, client: client.map(Arc::new) })
    }

    pub(crate) fn mode(&self) -> SslMode {
        match self.level {
            TlsLevel::Disable => SslMode::Disable,
            TlsLevel::Prefer => SslMode::Prefer,
            TlsLevel::Require | TlsLevel::VerifyCa | TlsLevel::VerifyFull => SslMode::Require,
        }
    }
}

fn client_config(level: TlsLevel, parameters: &TlsParameters) -> Result<ClientConfig, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if level < TlsLevel::VerifyCa {
        Arc::new(AcceptAnyCertificate(provider.signature_verification_algorithms))
    } else {
        let roots = Arc::new(trusted_roots(parameters.sslrootcert.as_deref())?);
        let full = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| error.to_string())?;
        if level == TlsLevel::VerifyFull { full } else { Arc::new(AcceptAnyHostName(full)) }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match (&parameters.sslcert, &parameters.sslkey) {
        (Some(certificate), Some(key)) => {
            let chain = read_certificates("sslcert", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("sslkey {key}: {error}"))?;
            config.with_client_auth_cert(chain, key).map_err(|error| format!("sslcert {certificate}: {error}"))?
        }
        (None, None) => config.with_no_client_auth(),
        _ => return Err("sslcert and sslkey must be given together".into()),
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(config)
}

fn trusted_roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None | Some(PUBLIC_ROOTS) => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            for root in read_certificates("sslrootcert", file)? {
                roots.add(root).map_err(|error| format!("sslrootcert {file}: {error}"))?;
            }
        }
    }
    Ok(roots)
}

fn read_certificates(parameter: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let with_file = |error: &dyn fmt::Display| format!("{parameter} {file}: {error}");
    let found = CertificateDer::pem_file_iter(file).map_err(|error| with_file(&error))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| with_file(&error))?;
    if found.is_empty() { Err(with_file(&"the file contains no certificate")) } else { Ok(found) }
}

/// Accepts any certificate. The connection is encrypted, but another server could impersonate the right one.
#[derive(Debug)]
struct AcceptAnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Accepts any certificate that a trusted authority signed, whatever its host name.
#[derive(Debug)]
struct AcceptAnyHostName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AcceptAnyHostName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The verifier checks the host name last, after everything else succeeded.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl MakeTlsConnect<Socket> for Encryption {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = Cow<'static, str>;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake { client: self.client.clone(), host: host.to_owned() })
    }
}

/// The TLS handshake, which begins once the server agrees to encrypt.
pub(crate) struct Handshake {
    client: Option<Arc<ClientConfig>>,
    host: String,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let client = self.client.ok_or_else(|| io::Error::other("encryption is disabled"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Encrypted(Box::new(TlsConnector::from(client).connect(name, socket).await?)))
        })
    }
}

pub(crate) struct Encrypted(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
