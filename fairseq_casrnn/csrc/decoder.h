// The decoder's loop over time: at each step all layers, then attention, whose output is fed back.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace casrnn {

// T steps, B rows, H hidden units, S source positions, R sentences; other letters as in loop.h. All
// tensors are contiguous, unless noted, and of one dtype; missing ones are undefined. Names are
// those of fairseq_casrnn/recurrence/decoder_loop.py.
struct DecoderLayer {
  std::string name;        // of the kernel
  at::Tensor weight_ih_t;  // (H, G), any strides; undefined without input feeding
  at::Tensor weight_hh_t;  // (H, P), any strides
  at::Tensor bias;         // (G); undefined if the gates come in with it
  at::Tensor params;       // (rows, H)
  at::Tensor attention;    // (S of the mixture, H), any strides
  at::Tensor gates;        // (T, B, G)
  at::Tensor candidate;    // (T, B, H)
  at::Tensor mixes;        // (T, B, S of the mixture)
  at::Tensor hs, cs;       // (T + 1, B, H)
  at::Tensor drop, up;     // (T, B, H): dropout mask of h passed up, and h after it
};

struct Decoder {
  std::vector<DecoderLayer> layers;
  at::Tensor weight_in_t;             // (E, G) of the embedding, any strides; of DecoderSteps only
  at::Tensor keys, values;            // (R, S, H)
  at::Tensor mask;                    // (R, S) bool
  at::Tensor source;                  // (B) int64: the sentence of each row; undefined if R = B
  at::Tensor weight_out_t;            // (H, H), any strides
  at::Tensor drop_out;                // (T, B, H)
  at::Tensor feeds;                   // (T + 1, B, H)
  at::Tensor outs;                    // (T, B, H); without dropout, feeds without its first step
  at::Tensor alphas;                  // (T, B, S)
  std::optional<double> temperature;  // of the mixtures' softmax; none: hard routing
};

struct DecoderGradients {
  at::Tensor out, alpha;                 // incoming: (T, B, H), (T, B, S), or undefined
  at::Tensor d_pre, d_scores;            // (T, B, H), (T, B, S)
  std::vector<at::Tensor> dh, dc;        // (B, H); in the end, of the initial state
  std::vector<at::Tensor> mixes;         // (T, B, S of the mixture)
  std::vector<at::Tensor> bias, params;  // (G), (rows, H), allocated here; may be undefined
};

// Fills hs, cs, feeds, outs, alphas, mixes and up. Unless keep, gates and candidate are undefined
// afterwards.
void decode_forward(Decoder& decoder, bool keep);

// Overwrites gates and candidate with the gradients of their pre-activations. R must be B.
void decode_backward(Decoder& decoder, DecoderGradients& grads);

struct PackedWeights;  // of all products of a step

// Step by step, for beam search: a decoder with T = 1 that is used repeatedly.
class DecoderSteps {
 public:
  // decoder: with the initial state in hs[0], cs[0] and feeds[0]; gates, candidate, outs and alphas
  // are allocated here. Of mixes only the shape is used.
  explicit DecoderSteps(Decoder decoder);

  // The next step's rows continue these rows of the last one, (B') int64.
  void reorder(const at::Tensor& order);

  // embedded: (B, E); routed: (B, S of the mixture), its part of the mixture's scores, or
  // undefined. No step has more rows than the first. Returns the attention output (B, H) and the
  // weights (B, S).
  std::tuple<at::Tensor, at::Tensor> step(const at::Tensor& embedded, const at::Tensor& routed);

 private:
  void advance(at::Tensor& states, int64_t batch) const;
  int64_t rows_at_once() const;

  Decoder decoder_;
  std::shared_ptr<PackedWeights> packed_;
  at::Tensor order_;  // pending
  const int64_t size_;
  bool begun_ = false;
};

}  // namespace casrnn
