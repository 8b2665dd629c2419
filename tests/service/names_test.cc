// Names, addresses, page tokens and ids.
#include "service/names.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "service/address.h"
#include "service/page_token.h"

namespace tokend::service {
namespace {

TEST(Names, SessionsAndVersions) {
  EXPECT_EQ(ParseSessionName("sessions/a")->id, "a");
  EXPECT_FALSE(ParseSessionName("sessions/a")->version.has_value());
  EXPECT_EQ(ParseSessionName("sessions/a.b_c-d/versions/12")->version, 12);
  EXPECT_EQ(ParseSessionName("sessions/a/versions/9223372036854775807")->version, INT64_MAX);
  for (const char* bad :
       {"", "a", "sessions", "sessions/", "sessions//versions/1", "sessions/a/", "sessions/a/b",
        "sessions/a/versions", "sessions/a/versions/", "sessions/a/versions/0",
        "sessions/a/versions/01", "sessions/a/versions/-1", "sessions/a/versions/1x",
        "sessions/a/versions/+1", "sessions/a/versions/9223372036854775808",
        "sessions/a/versions/1/2", "sessions/.a", "Sessions/a", " sessions/a"}) {
    EXPECT_FALSE(ParseSessionName(bad).has_value()) << bad;
  }
  EXPECT_EQ(VersionResource("a", 3), "sessions/a/versions/3");
}

TEST(Names, ModelIds) {
  EXPECT_EQ(ModelId("/x/y/SmolLM2.Q4_1.gguf"), "SmolLM2.Q4_1");
  EXPECT_EQ(ModelId("a b.GGUF"), "a-b");
  EXPECT_EQ(ModelId(".gguf"), "model");
}

TEST(Names, UuidsDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = RandomUuid();
    EXPECT_TRUE(IsRequestId(uuid));
    EXPECT_EQ(uuid[14], '4');
    EXPECT_TRUE(seen.insert(uuid).second);
  }
}

TEST(Address, Parses) {
  const Address tcp = ParseAddress("127.0.0.1:50551").value();
  EXPECT_EQ(tcp.host, "127.0.0.1");
  EXPECT_EQ(tcp.port, 50551);
  EXPECT_TRUE(tcp.is_loopback());
  EXPECT_FALSE(ParseAddress("0.0.0.0:1")->is_loopback());
  EXPECT_FALSE(ParseAddress("[::]:1")->is_loopback());
  EXPECT_FALSE(ParseAddress("192.168.1.2:1")->is_loopback());
  EXPECT_FALSE(ParseAddress("localhost.example.com:1")->is_loopback());
  EXPECT_TRUE(ParseAddress("[::1]:0")->is_loopback());
  EXPECT_TRUE(ParseAddress("localhost:0")->is_loopback());
  EXPECT_TRUE(ParseAddress("127.9.9.9:0")->is_loopback());
  EXPECT_EQ(ParseAddress("[::1]:80")->ToString(), "[::1]:80");
  const Address local = ParseAddress("unix:/run/tokend/tokend.sock").value();
  EXPECT_TRUE(local.is_unix());
  EXPECT_EQ(local.path, "/run/tokend/tokend.sock");
  EXPECT_EQ(local.ToString(), "unix:/run/tokend/tokend.sock");
  EXPECT_TRUE(ParseAddress("unix:" + std::string(107, 'a')).ok());
}

TEST(Address, RefusesNonsense) {
  for (const std::string& bad :
       {std::string(""), std::string("x"), std::string(":1"), std::string("a:"),
        std::string("a:-1"), std::string("a:65536"), std::string("a:1x"),
        std::string("a:99999999999999"), std::string("a b:1"), std::string("::1:80"),
        std::string("[::1]"), std::string("[x]:1"), std::string("unix:"),
        std::string("unix:") + std::string(108, 'a'), std::string("unix:a\0b", 8)}) {
    EXPECT_FALSE(ParseAddress(bad).ok()) << bad;
  }
}

TEST(PageToken, ServesItsListAlone) {
  const std::string token = MakePageToken("sessions by 10", "a");
  EXPECT_EQ(ReadPageToken("sessions by 10", token), "a");
  EXPECT_FALSE(ReadPageToken("sessions by 11", token).has_value());
  EXPECT_FALSE(ReadPageToken("sessions by 10", token + "x").has_value() &&
               ReadPageToken("sessions by 10", token + "x") == "a");
  EXPECT_FALSE(ReadPageToken("sessions by 10", "nonsense!").has_value());
  EXPECT_FALSE(ReadPageToken("sessions by 10", "").has_value());
}

}  // namespace
}  // namespace tokend::service
