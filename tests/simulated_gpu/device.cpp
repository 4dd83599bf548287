// A GPU for CPU builds of torch. Its memory is the host's, and its operators run on the CPU.
//
// For ../test_simulated_gpu.py. Load the library before torch, which looks for GPUs once. Tensors
// on the device "cuda" take every path of Python code and of autograd that they take on a GPU.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>

namespace {

using at::IntArrayRef;
using at::ScalarType;
using at::Tensor;
using c10::Device;
using c10::DispatchKey;
using c10::IValue;
using c10::Storage;
using c10::SymInt;
using c10::SymIntArrayRef;
using std::optional;

constexpr auto CUDA = c10::DeviceType::CUDA;
constexpr size_t ALIGNMENT = 512;  // of CUDA's allocator, too
const Device gpu(CUDA, 0);

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    // Zeros, so that what no kernel has written is finite.
    void* data =
        bytes ? std::aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) & -ALIGNMENT) : nullptr;
    if (bytes) std::memset(data, 0, bytes);
    return {data, data, &std::free, gpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
Memory memory;

// The one device is always the current one, and everything in its streams is done.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<CUDA> {
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, gpu); }
  Device exchangeDevice(Device) const override { return gpu; }
  Device getDevice() const override { return gpu; }
  c10::Stream getStream(Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(Device) const override { return stream(); }
  c10::Stream getNewStream(Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
c10::impl::DeviceGuardImplRegistrar guard(CUDA, new Guard);

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  Device getDeviceFromPtr(void*) const override { return gpu; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Allocator* getCUDADeviceAllocator() const override { return &memory; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
  void deviceSynchronize(c10::DeviceIndex) const override {}
};

// --- operators ----------------------------------------------------------------------------------

// The same memory on another device; it lives as long as either storage.
Storage relabelled(const Storage& storage, Device device) {
  auto* owner = new Storage(storage);
  auto release = [](void* owner) { delete static_cast<Storage*>(owner); };
  c10::DataPtr data(const_cast<void*>(storage.data()), owner, release, device);
  auto* allocator = device == gpu ? &memory : c10::GetAllocator(c10::kCPU);
  return Storage(Storage::use_byte_size_t(), storage.nbytes(), std::move(data), allocator, true);
}

// A tensor of the shape of `like` in this storage.
Tensor in_storage(const Storage& storage, const Tensor& like, DispatchKey key) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(Storage(storage), key, like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  made._set_neg(like.is_neg());
  return made;
}

// The arguments of an operator on the GPU, with tensors of the CPU that share their memory.
struct Arguments {
  struct Pair {
    Tensor device, host;
  };
  std::vector<Pair> pairs;
  Device device = gpu;  // of tensors that the operator creates

  Tensor on_host(const Tensor& t) {
    if (!t.defined() || !t.is_cuda()) return t;
    pairs.push_back({t, in_storage(relabelled(t.storage(), c10::kCPU), t, DispatchKey::CPU)});
    return pairs.back().host;
  }

  IValue on_host(const IValue& value) {
    if (value.isTensor()) return on_host(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(on_host(t));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<optional<Tensor>> list;
      for (const optional<Tensor>& t : value.toOptionalTensorVector())
        list.push_back(t ? optional<Tensor>(on_host(*t)) : std::nullopt);
      return list;
    }
    if (!value.isDevice()) return value;
    device = value.toDevice();
    return Device(c10::kCPU);
  }

  Tensor on_device(const Tensor& t) const {
    if (!t.defined() || device != gpu) return t;
    for (const auto& pair : pairs)  // a view of an argument
      if (t.storage().data() && t.storage().data() == pair.host.storage().data())
        return in_storage(pair.device.storage(), t, DispatchKey::CUDA);
    return in_storage(relabelled(t.storage(), gpu), t, DispatchKey::CUDA);
  }

  IValue on_device(const IValue& value) const {
    if (value.isTensor()) return on_device(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(on_device(t));
    return list;
  }

  // Resizes arguments whose counterparts the operator has resized.
  void resize() const {
    for (const auto& [device, host] : pairs) {
      auto* impl = device.unsafeGetTensorImpl();
      if (device.storage().data() != host.storage().data())
        impl->set_storage_keep_dtype(relabelled(host.storage(), gpu));
      if (device.sizes() != host.sizes() || device.strides() != host.strides())
        impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    }
  }
};

// Any operator: calls it for the CPU.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string& name = schema.operator_name().name;
  const size_t count = schema.arguments().size(), begin = stack->size() - count;
  const std::vector<IValue> given(stack->begin() + begin, stack->end());
  Arguments arguments;
  for (size_t i = begin; i < stack->size(); ++i) stack->at(i) = arguments.on_host(stack->at(i));
  if ((name == "aten::_softmax" || name == "aten::_log_softmax") && given[2].toBool()) {
    stack->at(begin) =
        stack->at(begin).toTensor().to(ScalarType::Float);  // in float32, from halves
    stack->at(begin + 2) = false;
  }
  op.callBoxed(stack);
  arguments.resize();
  const size_t first = stack->size() - schema.returns().size();
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    IValue& value = stack->at(first + r);
    const auto* alias = schema.returns()[r].alias_info();
    if (!alias || !alias->isWrite()) {
      value = arguments.on_device(value);
      continue;
    }
    for (size_t i = 0; i < count; ++i) {  // the argument that was written
      const auto* of = schema.arguments()[i].alias_info();
      if (of && of->isWrite() && of->beforeSets() == alias->beforeSets()) value = given[i];
    }
  }
}

Tensor empty(SymIntArrayRef size, optional<ScalarType> dtype, optional<at::Layout>,
             optional<Device>, optional<bool>, optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory,
                                   c10::DispatchKeySet(DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride, optional<ScalarType> dtype,
                     optional<at::Layout>, optional<Device>, optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
      c10::DispatchKeySet(DispatchKey::CUDA), c10::dtype_or_default(dtype));
}

Tensor as_strided(const Tensor& self, SymIntArrayRef size, SymIntArrayRef stride,
                  optional<SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? optional<int64_t>(offset->expect_int()) : std::nullopt);
}

Tensor view(const Tensor& self, SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

const Tensor& resize_(const Tensor& self, SymIntArrayRef size, optional<at::MemoryFormat>) {
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), C10_AS_INTARRAYREF_SLOW(size),
                               std::nullopt);
  return self;
}

Tensor& set_storage(Tensor& self, Storage source, int64_t offset, IntArrayRef size,
                    IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(size, stride, offset);
  return self;
}

// Products with a result of another dtype exist only for GPUs.
Tensor& mm_dtype_out(const Tensor& a, const Tensor& b, ScalarType dtype, Tensor& out) {
  return out.copy_(at::mm(a.to(dtype), b.to(dtype)));
}

Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType dtype) {
  auto result = at::empty_like(grad);
  at::_softmax_backward_data_out(result, grad, output, dim, grad.scalar_type());
  return result.to(dtype);
}

Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim,
                            ScalarType dtype) {
  auto result = at::empty_like(grad);
  at::_log_softmax_backward_data_out(result, grad, output, dim, grad.scalar_type());
  return result.to(dtype);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  m.impl("mm.dtype_out", &mm_dtype_out);
  m.impl("_softmax_backward_data", &softmax_backward);
  m.impl("_log_softmax_backward_data", &log_softmax_backward);
}

const bool registered = [] {
  c10::SetAllocator(CUDA, &memory);
  at::CUDAHooksRegistry()->Register("CUDAHooks",
                                    [](at::CUDAHooksArgs) { return std::make_unique<Hooks>(); });
  return true;
}();

}  // namespace
