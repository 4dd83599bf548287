// The decoder's loop over time: all layers, then attention, whose output the bottom layer reads next.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace casrnn {

// T steps, B rows, H hidden units, S source positions, R sentences; other letters as in loop.h. All
// tensors are dense, unless said, and of one type; undefined ones stand for what is not there. The
// meaning of each is that of its namesake in fairseq_casrnn/recurrence/attention_loop.py.
struct DecoderLayer {
  std::string name;        // of the kernel
  at::Tensor weight_ih_t;  // (H, G), any strides; undefined: a bottom layer that reads no feed
  at::Tensor weight_hh_t;  // (H, P), any strides
  at::Tensor bias;         // (G); the bottom layer's is in its gates already
  at::Tensor params;       // (rows, H)
  at::Tensor attention;    // (S of the mixture, H), any strides
  at::Tensor gates;        // (T, B, G)
  at::Tensor candidate;    // (T, B, H)
  at::Tensor mixes;        // (T, B, S of the mixture)
  at::Tensor hs, cs;       // (T + 1, B, H)
  at::Tensor drop, up;     // (T, B, H): dropout mask of h on its way up, and h after it
};

struct Decoder {
  std::vector<DecoderLayer> layers;
  at::Tensor keys, values;            // (R, S, H)
  at::Tensor mask;                    // (R, S) bool
  at::Tensor source;                  // (B) int64: the sentence of each row; undefined: its own, R = B
  at::Tensor weight_out_t;            // (H, H), any strides
  at::Tensor drop_out;                // (T, B, H)
  at::Tensor feeds;                   // (T + 1, B, H)
  at::Tensor outs;                    // (T, B, H); feeds without its first step where nothing is dropped
  at::Tensor alphas;                  // (T, B, S)
  std::optional<double> temperature;  // of the mixtures' softmax; none: hard routing
};

struct DecoderGradients {
  at::Tensor out, alpha;                 // from outside: (T, B, H), (T, B, S), or undefined
  at::Tensor d_pre, d_scores;            // (T, B, H), (T, B, S)
  std::vector<at::Tensor> dh, dc;        // (B, H), of the initial state in the end
  std::vector<at::Tensor> mixes;         // (T, B, S of the mixture)
  std::vector<at::Tensor> bias, params;  // (G), (rows, H), made; undefined where there are none
};

// Fills hs, cs, feeds, outs, alphas, mixes and up; where keep is false, gates and candidate hold nothing of
// use afterwards.
void decode_forward(Decoder& decoder, bool keep);

// Overwrites gates and candidate by the gradients of their pre-activations. The rows must be their own
// sentences.
void decode_backward(Decoder& decoder, DecoderGradients& grads);

// One step after another, for beam search: a decoder of one step, T = 1, that is used again and again.
class DecoderSteps {
 public:
  // decoder: with the initial state in hs[0], cs[0] and feeds[0]; gates, candidate, outs and alphas are
  // made here. Of mixes only the shape counts.
  explicit DecoderSteps(Decoder decoder);

  // The rows of the next step are continuations of these rows of the last one, (B') int64.
  void reorder(const at::Tensor& order);

  // gx: (B, G), the embedding's product, overwritten; routed: (B, S of the mixture), or undefined.
  // Returns the attention output (B, H) and the weights (B, S).
  std::tuple<at::Tensor, at::Tensor> step(const at::Tensor& gx, const at::Tensor& routed);

 private:
  void advance(at::Tensor& states, int64_t batch) const;

  Decoder decoder_;
  at::Tensor order_;  // pending
  const int64_t size_;
  bool begun_ = false;
};

}  // namespace casrnn
