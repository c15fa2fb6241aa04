//! Encrypting the way to PostgreSQL, as its own clients do: `sslmode` says how much, `sslrootcert` whom to trust.

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

/// What is asked for with `sslrootcert` to trust what browsers trust.
const PUBLIC_ROOTS: &str = "system";

/// How much is asked of an encrypted connection, from nothing to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Demand {
    Disable,
    Prefer,
    Require,
    /// Somebody who is trusted says that the server is a good one.
    VerifyCa,
    /// And that it is the one of this name.
    VerifyFull,
}

/// What a URL says about encryption.
#[derive(Debug, Default)]
pub(crate) struct Said {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
}

/// How connections are encrypted.
#[derive(Clone)]
pub(crate) struct Encryption {
    demand: Demand,
    /// Made only when there is something to encrypt.
    client: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Encryption").field(&self.demand).finish()
    }
}

impl Encryption {
    /// Takes what is about encryption out of the parameters of a URL; the rest is the driver's, in its own text.
    pub(crate) fn split(parameters: Vec<(&str, String, &str)>) -> (Said, String) {
        let mut said = Said::default();
        let mut rest = Vec::new();
        for (key, value, text) in parameters {
            match key {
                "sslmode" => said.sslmode = Some(value),
                "sslrootcert" => said.sslrootcert = Some(value),
                "sslcert" => said.sslcert = Some(value),
                "sslkey" => said.sslkey = Some(value),
                _ => rest.push(text),
            }
        }
        (said, rest.join("&"))
    }

    pub(crate) fn new(said: Said) -> Result<Self, String> {
        let demand = match (said.sslmode.as_deref(), said.sslrootcert.as_deref()) {
            // Whoever is issued by a public authority proves nothing but its name.
            (None, Some(PUBLIC_ROOTS)) | (Some("verify-full"), _) => Demand::VerifyFull,
            // As with PostgreSQL's own clients: who names an authority wants it to be asked.
            (Some("require"), Some(_)) | (Some("verify-ca"), _) => Demand::VerifyCa,
            (None | Some("prefer"), _) => Demand::Prefer,
            (Some("require"), None) => Demand::Require,
            (Some("disable"), _) => Demand::Disable,
            (Some(_), _) => return Err("sslmode is disable, prefer, require, verify-ca or verify-full".into()),
        };
        let client = (demand > Demand::Disable).then(|| client(demand, &said)).transpose()?;
        Ok(Self { demand, client: client.map(Arc::new) })
    }

    pub(crate) fn mode(&self) -> SslMode {
        match self.demand {
            Demand::Disable => SslMode::Disable,
            Demand::Prefer => SslMode::Prefer,
            Demand::Require | Demand::VerifyCa | Demand::VerifyFull => SslMode::Require,
        }
    }
}

fn client(demand: Demand, said: &Said) -> Result<ClientConfig, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if demand < Demand::VerifyCa {
        Arc::new(Anyone(provider.signature_verification_algorithms))
    } else {
        let roots = Arc::new(roots(said.sslrootcert.as_deref())?);
        let full = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| error.to_string())?;
        if demand == Demand::VerifyFull { full } else { Arc::new(AnyName(full)) }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match (&said.sslcert, &said.sslkey) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("sslcert", certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("sslkey {key}: {error}"))?;
            config.with_client_auth_cert(chain, key).map_err(|error| format!("sslcert {certificate}: {error}"))?
        }
        (None, None) => config.with_no_client_auth(),
        _ => return Err("sslcert and sslkey come together".into()),
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(config)
}

fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None | Some(PUBLIC_ROOTS) => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            for root in certificates("sslrootcert", file)? {
                roots.add(root).map_err(|error| format!("sslrootcert {file}: {error}"))?;
            }
        }
    }
    Ok(roots)
}

fn certificates(parameter: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let at = |error: &dyn fmt::Display| format!("{parameter} {file}: {error}");
    let found = CertificateDer::pem_file_iter(file).map_err(|error| at(&error))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| at(&error))?;
    if found.is_empty() { Err(at(&"there is no certificate in it")) } else { Ok(found) }
}

/// Takes any server: nobody can listen in, but somebody could answer in its place.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
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

/// Takes any server that a trusted authority knows, whatever it is called.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(certificate, between, name, ocsp, now) {
            // Looked at last, when all else was found good.
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

/// What is to be done once a server says that it can.
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
            let client = self.client.ok_or_else(|| io::Error::other("encryption is switched off"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Encrypted(Box::new(TlsConnector::from(client).connect(name, socket).await?)))
        })
    }
}

/// An encrypted stream.
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
