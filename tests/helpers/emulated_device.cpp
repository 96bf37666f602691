// A device for torch, "emulated": its memory is the computer's and its operators are the CPU's. Its tensors cannot be mixed with those of
// the CPU, as on every GPU, and there is no float64, as on Apple's.

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

namespace {

using at::Tensor;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {data, data, c10::free_cpu, c10::Device(kDevice, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(kDevice, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return {kDevice, 0}; }
  c10::Device getDevice() const override { return {kDevice, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto data = memory.allocate(bytes);
    std::memcpy(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr(std::move(data));
    storage.set_nbytes(bytes);
  }
};
Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

void check(std::optional<c10::ScalarType> dtype) {
  TORCH_CHECK_TYPE(
      c10::dtype_or_default(dtype) != c10::kDouble, "Cannot convert an emulated tensor to float64, which this device lacks");
}

Tensor empty(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>, std::optional<c10::Device>,
    std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  check(dtype);
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device>, std::optional<bool>) {
  check(dtype);
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// The same numbers as a tensor of the CPU, without a copy.
Tensor on_cpu(const Tensor& x) {
  if (!x.is_privateuseone()) return x;
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options().device(at::kCPU).requires_grad(false));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const Tensor& x) { return on_cpu(x).item(); }

// Whether an operator takes some arguments on the CPU, on any device.
bool mixes(const std::string& name) {
  static const std::set<std::string> names{
      "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::_pack_padded_sequence", "aten::_pack_padded_sequence_backward"};
  return names.count(name) > 0;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  bool here = false, there = false;
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    const auto tensors = value.isTensor() ? std::vector<Tensor>{value.toTensor()} : value.isTensorList() ? value.toTensorVector() : std::vector<Tensor>{};
    for (const auto& x : tensors) {
      if (!x.defined()) continue;
      here = here || x.is_privateuseone();
      there = there || (x.is_cpu() && x.dim() > 0);
    }
  }
  TORCH_CHECK(
      !(here && there) || mixes(op.schema().name()), "Expected all tensors to be on the same device, but ", op.schema().name(),
      " got some on the emulated one and some on the CPU");
  at::native::cpu_fallback(op, stack);
}

// torch.lstm and torch.gru choose their code by the device; the CPU's, through differentiable copies.
std::vector<Tensor> copies(at::TensorList tensors) {
  std::vector<Tensor> found;
  for (const auto& x : tensors) found.push_back(x.cpu());
  return found;
}

std::tuple<Tensor, Tensor, Tensor> lstm(
    const Tensor& x, at::TensorList start, at::TensorList weights, bool bias, int64_t layers, double dropout, bool train,
    bool both, bool batch_first) {
  auto [y, h, c] = at::lstm(x.cpu(), copies(start), copies(weights), bias, layers, dropout, train, both, batch_first);
  return {y.to(x.device()), h.to(x.device()), c.to(x.device())};
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(
    const Tensor& x, const Tensor& counts, at::TensorList start, at::TensorList weights, bool bias, int64_t layers,
    double dropout, bool train, bool both) {
  auto [y, h, c] = at::lstm(x.cpu(), counts, copies(start), copies(weights), bias, layers, dropout, train, both);
  return {y.to(x.device()), h.to(x.device()), c.to(x.device())};
}

std::tuple<Tensor, Tensor> gru(
    const Tensor& x, const Tensor& start, at::TensorList weights, bool bias, int64_t layers, double dropout, bool train,
    bool both, bool batch_first) {
  auto [y, h] = at::gru(x.cpu(), start.cpu(), copies(weights), bias, layers, dropout, train, both, batch_first);
  return {y.to(x.device()), h.to(x.device())};
}

std::tuple<Tensor, Tensor> gru_packed(
    const Tensor& x, const Tensor& counts, const Tensor& start, at::TensorList weights, bool bias, int64_t layers,
    double dropout, bool train, bool both) {
  auto [y, h] = at::gru(x.cpu(), counts, start.cpu(), copies(weights), bias, layers, dropout, train, both);
  return {y.to(x.device()), h.to(x.device())};
}

Tensor convolution(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, c10::IntArrayRef stride, c10::IntArrayRef padding,
    c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding, int64_t groups) {
  const auto b = bias && bias->defined() ? std::optional<Tensor>(on_cpu(*bias)) : std::nullopt;
  return at::convolution(on_cpu(x), on_cpu(weight), b, stride, padding, dilation, transposed, output_padding, groups).to(x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, c10::IntArrayRef stride, c10::IntArrayRef padding,
    c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  const auto sizes = wanted[2] ? std::optional<c10::IntArrayRef>(weight.sizes().slice(0, 1)) : std::nullopt;
  auto [a, b, c] = at::convolution_backward(
      on_cpu(gradient), on_cpu(x), on_cpu(weight), sizes, stride, padding, dilation, transposed, output_padding, groups, wanted);
  const auto back = [&](const Tensor& t) { return t.defined() ? t.to(x.device()) : t; };
  return {back(a), back(b), back(c)};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("view", at::native::view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("resize_", at::native::resize_);
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", lstm);
  m.impl("lstm.data", lstm_packed);
  m.impl("gru.input", gru);
  m.impl("gru.data", gru_packed);
}

}  // namespace
