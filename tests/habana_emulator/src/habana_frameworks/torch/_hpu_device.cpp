// A real at::kHPU device whose memory is host memory and whose maths is the CPU's.
// For tests of code that says "hpu": it runs unchanged, and fails where it mixes devices or asks for more than HABANA_EMU_MEM_GB.
#include <torch/extension.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <atomic>
#include <cstdlib>

namespace {
using c10::Device; using c10::DeviceType; using c10::DeviceIndex; using c10::Stream;
std::atomic<size_t> g_in_use{0}, g_peak{0}, g_allocs{0}, g_frees{0}, g_limit{SIZE_MAX};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::HPU; }
  Device exchangeDevice(Device) const override { return Device(DeviceType::HPU, 0); }
  Device getDevice() const override { return Device(DeviceType::HPU, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, Device(DeviceType::HPU, 0)); }
  Stream getDefaultStream(Device) const override { return getStream(getDevice()); }
  Stream getStreamFromGlobalPool(Device, bool) const override { return getStream(getDevice()); }
  Stream getNewStream(Device, int) const override { return getStream(getDevice()); }
  Stream exchangeStream(Stream s) const override { return s; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(HPU, Guard);

struct Header { size_t n; size_t pad[7]; };            // 64 bytes, keeps alignment
void del(void* ctx) {
  auto* h = static_cast<Header*>(ctx);
  g_in_use -= h->n; g_frees++; std::free(h);
}
struct Alloc final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    size_t tot = ((n + sizeof(Header) + 63) / 64) * 64;
    auto* h = static_cast<Header*>(std::aligned_alloc(64, tot));
    TORCH_CHECK(h, "emulated HPU: out of memory");
    h->n = n;
    size_t u = (g_in_use += n); size_t p = g_peak; while (u > p && !g_peak.compare_exchange_weak(p, u)) {}
    if (u > g_limit) {  // the real plugin's words: what classifies them is tested
      g_in_use -= n; std::free(h);
      TORCH_CHECK(false, "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::", n, " (", n >> 20, ")MB");
    }
    g_allocs++;
    return {reinterpret_cast<char*>(h) + sizeof(Header), h, &del, Device(DeviceType::HPU, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* d, const void* s, std::size_t n) const override { default_copy_data(d, s, n); }
};
Alloc g_alloc;
REGISTER_ALLOCATOR(DeviceType::HPU, &g_alloc);

struct HPUHooks final : at::HPUHooksInterface {           // makes at::getAccelerator() answer kHPU
  HPUHooks(at::HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  Device getDeviceFromPtr(void*) const override { return Device(DeviceType::HPU, 0); }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
};
using at::HPUHooksRegistry; using at::RegistererHPUHooksRegistry;
REGISTER_HPU_HOOKS(HPUHooks);
const c10::DispatchKeySet KS(c10::DispatchKey::HPU);

at::Tensor as_cpu(const at::Tensor& t) {               // zero-copy CPU view of an HPU tensor
  if (!t.is_hpu()) return t;
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
  return at::from_blob(t.data_ptr(), t.sizes(), t.strides(), [keep = t.storage()](void*) {}, t.options().device(at::kCPU));
}
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dt, std::optional<at::Layout>,
                 std::optional<Device>, std::optional<bool>, std::optional<at::MemoryFormat> mf) {
  return at::Tensor(at::detail::empty_generic(size, &g_alloc, KS, at::dtype_or_default(dt), mf));
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dt,
                         std::optional<at::Layout>, std::optional<Device>, std::optional<bool>) {
  return at::Tensor(at::detail::empty_strided_generic(size, stride, &g_alloc, KS, at::dtype_or_default(dt)));
}
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> mf) {
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), size, std::nullopt);
  if (mf) self.unsafeGetTensorImpl()->empty_tensor_restride(*mf);
  return self;
}
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  if (dst.numel()) as_cpu(dst).copy_(as_cpu(self));
  return dst;
}
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}
at::Scalar local_scalar_dense(const at::Tensor& self) { return as_cpu(self).item(); }
int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         double, bool, std::optional<double>, bool) { return 0; }   // math
at::Tensor& set_storage(at::Tensor& self, at::Storage src, int64_t off, at::IntArrayRef size, at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(src));
  self.unsafeGetTensorImpl()->set_storage_offset(off);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return self;
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& src) {
  return set_storage(self, src.storage(), src.storage_offset(), src.sizes(), src.strides());
}
at::Tensor view(const at::Tensor& s, at::IntArrayRef sz) { return at::native::view(s, sz); }
at::Tensor as_strided(const at::Tensor& s, at::IntArrayRef sz, at::IntArrayRef st, std::optional<int64_t> off) {
  return at::native::as_strided_tensorimpl(s, sz, st, off);
}
at::Tensor reshape_alias(const at::Tensor& s, at::IntArrayRef sz, at::IntArrayRef st) {
  return at::native::_reshape_alias(s, sz, st);
}
at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, at::IntArrayRef st,
                at::IntArrayRef pad, at::IntArrayRef dil, bool tr, at::IntArrayRef op, int64_t g) {
  std::optional<at::Tensor> cb; if (b && b->defined()) cb = as_cpu(*b);
  return at::convolution(as_cpu(x), as_cpu(w), cb, st, pad, dil, tr, op, g).to(x.device());
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> conv_bwd(const at::Tensor& go, const at::Tensor& x, const at::Tensor& w,
    at::IntArrayRef st, at::IntArrayRef pad, at::IntArrayRef dil, bool tr, at::IntArrayRef op, int64_t g,
    std::array<bool, 3> mask) {
  std::vector<int64_t> bias_sz{tr ? w.size(1) * g : w.size(0)};
  auto r = at::convolution_backward(as_cpu(go), as_cpu(x), as_cpu(w),
      mask[2] ? at::OptionalIntArrayRef(bias_sz) : at::OptionalIntArrayRef(), st, pad, dil, tr, op, g, mask);
  auto h = [&](const at::Tensor& t) { return t.defined() ? t.to(x.device()) : t; };
  return {h(std::get<0>(r)), h(std::get<1>(r)), h(std::get<2>(r))};
}
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack, true); }
} // namespace

TORCH_LIBRARY_IMPL(_, HPU, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("resize_", resize_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("_fused_sdp_choice", fused_sdp_choice);
  m.impl("convolution_overrideable", conv);
  m.impl("convolution_backward_overrideable", conv_bwd);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
}
TORCH_LIBRARY_IMPL(_, AutocastHPU, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
#define KERNEL_HPU(...) KERNEL(c10::DeviceType::HPU, __VA_ARGS__)
#define K_LOW(...) KERNEL_HPU(__VA_ARGS__, lower_precision_fp)
#define K_FP32(...) KERNEL_HPU(__VA_ARGS__, fp32)
namespace at::autocast {
TORCH_LIBRARY_IMPL(aten, AutocastHPU, m) {
  AT_FORALL_LOWER_PRECISION_FP(K_LOW)
  AT_FORALL_FP32(K_FP32)
}
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("as_cpu", &as_cpu);
  m.def("stats", [] { return std::tuple<size_t, size_t, size_t, size_t>{g_in_use, g_peak, g_allocs, g_frees}; });
  m.def("reset_peak", [] { g_peak = g_in_use.load(); });
  m.def("set_limit", [](size_t bytes) { g_limit = bytes; });
}
