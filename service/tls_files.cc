#include "service/tls_files.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/read_file.h"
#include "core/base/status_macros.h"
#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"
#include "service/errors.h"

namespace tokend::service {
namespace {

constexpr absl::string_view kCertSetting = "tls_cert_file";
constexpr absl::string_view kKeySetting = "tls_key_file";
constexpr size_t kMaxPemBytes = 1 << 20;

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;

// OpenSSL's own last words, which it forgets.
std::string TakeProblem() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string out = reason != nullptr ? reason : "unknown";
  ERR_clear_error();
  return out;
}

absl::StatusOr<std::string> Read(absl::string_view setting, const std::string& path) {
  auto text = base::ReadWholeFile(path, kMaxPemBytes);
  if (!text.ok()) return BadSetting(setting, text.status().message());
  return text;
}

Bio View(const std::string& pem) {
  Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  TOKEND_CHECK(bio != nullptr);
  return bio;
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& cert_file, const std::string& key_file) {
  TlsFiles out;
  TOKEND_ASSIGN_OR_RETURN(out.certificates, Read(kCertSetting, cert_file));
  TOKEND_ASSIGN_OR_RETURN(out.key, Read(kKeySetting, key_file));
  ERR_clear_error();
  // As gRPC reads them: an encrypted key's password is empty, and nobody is asked.
  char password[] = "";
  const Certificate certificate(
      PEM_read_bio_X509_AUX(View(out.certificates).get(), nullptr, nullptr, password));
  if (certificate == nullptr) {
    return BadSetting(kCertSetting,
                      absl::StrCat(cert_file, " holds no PEM certificate: ", TakeProblem()));
  }
  const Key key(PEM_read_bio_PrivateKey(View(out.key).get(), nullptr, nullptr, password));
  if (key == nullptr) {
    return BadSetting(kKeySetting,
                      absl::StrCat(key_file, " holds no usable PEM key: ", TakeProblem()));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return BadSetting(kKeySetting, absl::StrCat(key_file, " is not the key of the certificate in ",
                                                cert_file, ": ", TakeProblem()));
  }
  // A weak certificate reads well, and is refused here.
  const Context context(SSL_CTX_new(TLS_server_method()));
  TOKEND_CHECK(context != nullptr);
  if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1) {
    return BadSetting(kCertSetting, absl::StrCat(cert_file, ": ", TakeProblem()));
  }
  return out;
}

}  // namespace tokend::service
