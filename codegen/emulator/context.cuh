// Switching between stacks: the one thing C++ has no words for.
//
// By hand on x86-64 and aarch64 (about 6 ns); elsewhere through ucontext, which asks the kernel to save the signal
// mask on every switch and so costs 30 times as much.
#pragma once

#if !defined(DPLC_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define DPLC_UCONTEXT
#endif

#ifdef DPLC_UCONTEXT

#include <ucontext.h>

namespace dplc {

struct Context {
  ucontext_t state;
};

// `entry` will run on the stack [bottom, top) when the context is first switched to. It must never return.
inline void prepare(Context& context, char* bottom, char* top, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = bottom;
  context.state.uc_stack.ss_size = static_cast<size_t>(top - bottom);
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

inline void switch_to(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

}  // namespace dplc

#else

#include <stdint.h>

namespace dplc {

// Everything else lives on the stack itself.
struct Context {
  void* stack_pointer;
};

}  // namespace dplc

// Pushes the registers a callee must preserve, stores the stack pointer in *save, and returns on the stack `load`.
extern "C" void dplc_switch_stack(void** save, void* load);

namespace dplc {

inline void switch_to(Context& from, Context& to) { dplc_switch_stack(&from.stack_pointer, to.stack_pointer); }

#if defined(__x86_64__)
// rbp rbx r12 r13 r14 r15, then the return address, then eight bytes so that `entry` finds the alignment of a call.
inline void prepare(Context& context, char*, char* top, void (*entry)()) {
  void** slots = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15}) - 8;
  for (int i = 0; i < 8; ++i) slots[i] = nullptr;
  slots[6] = reinterpret_cast<void*>(entry);
  context.stack_pointer = slots;
}
#else
// x19 to x30 (x30 is the return address), then d8 to d15.
inline void prepare(Context& context, char*, char* top, void (*entry)()) {
  void** slots = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15}) - 20;
  for (int i = 0; i < 20; ++i) slots[i] = nullptr;
  slots[11] = reinterpret_cast<void*>(entry);
  context.stack_pointer = slots;
}
#endif

}  // namespace dplc

#ifdef DPLC_DEFINE_SWITCH
#if defined(__x86_64__)
asm(R"(
.text
.globl dplc_switch_stack
.hidden dplc_switch_stack
.type dplc_switch_stack,@function
dplc_switch_stack:
  push %r15
  push %r14
  push %r13
  push %r12
  push %rbx
  push %rbp
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %rbp
  pop %rbx
  pop %r12
  pop %r13
  pop %r14
  pop %r15
  ret
.size dplc_switch_stack, .-dplc_switch_stack
)");
#else
asm(R"(
.text
.globl dplc_switch_stack
.hidden dplc_switch_stack
.type dplc_switch_stack,%function
dplc_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size dplc_switch_stack, .-dplc_switch_stack
)");
#endif
#endif  // DPLC_DEFINE_SWITCH

#endif  // DPLC_UCONTEXT
