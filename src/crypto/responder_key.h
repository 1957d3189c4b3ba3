// The key that authenticates a responder's answers to hellos. Each incarnation of a responder has its own and numbers
// its answers, so no nonce repeats.
//
// An initiator learns the incarnation from the very answer that it has to check, and anybody who saw its hello can make
// it check one. So the last step is no HKDF but a pseudorandom function of a few AES blocks, under a key that is
// derived before the first answer comes: to check an answer costs about as much as to check any other forged packet.
#pragma once

#include <algorithm>

#include "crypto/cookie.h"
#include "crypto/derive.h"

namespace weir::crypto {

// `answers` is the function of the answer key.
inline KeyBytes responder_key(const Prf& answers, const Incarnation& responder) {
  Prf::Context context{};
  std::copy(responder.begin(), responder.end(), context.begin());
  const auto bytes = answers(0, context);
  KeyBytes key;
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

// From the beginning, for those who do it once.
inline KeyBytes derive_responder_key(Aead& aead, const SharedSecret& shared, const Incarnation& responder) {
  KeyBytes answer_key = derive_answer_key(shared);
  const KeyBytes key = responder_key(Prf(aead, answer_key), responder);
  wipe(answer_key);
  return key;
}

}  // namespace weir::crypto
