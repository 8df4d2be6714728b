/*
 * blocks.cc - the threads of a block, one after the other: the launches of kernel_host.h. Blocks
 * come in a drawn order, and so do a block's threads between two barriers. Before some blocks
 * shared memory is poisoned.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <setjmp.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#include "kernel_host.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{
enum { STACK_BYTES = 1 << 16 };

/* A fiber's first entry is by ucontext. Later switches are by jumps: swapcontext saves the mask of
 * signals by a system call, and took a third of the tests' time. */
struct fiber {
    ucontext_t context;
    jmp_buf at;
    uint3 thread;
    bool begun = false, done = false;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]}; /* of which it touches a page or two */
};

std::vector<fiber> fibers;
jmp_buf scheduler;
fiber *running;
const std::function<void()> *body;

void leave()
{
    if (_setjmp(running->at) == 0)
        _longjmp(scheduler, 1);
}

/* A fiber outlives its thread: it goes round for the thread of this number in the next block. */
void enter()
{
    for (;;) {
        (*body)();
        running->done = true;
        leave();
    }
}

void resume()
{
    if (_setjmp(scheduler) != 0)
        return;
    if (running->begun)
        _longjmp(running->at, 1);
    running->begun = true;
    setcontext(&running->context);
}

/* The numbers below n in an order drawn anew: where it begins and how far it steps. Each process
 * draws its own, so neither two passes nor two processes have the same orders. */
class drawn_order
{
    uint64_t n, first, step;

  public:
    explicit drawn_order(uint64_t numbers) : n(numbers)
    {
        static std::mt19937_64 generator((uint64_t)getpid());
        first = generator() % n;
        step = 1 + generator() % n;
        while (std::gcd(step, n) != 1)
            step = step % n + 1;
    }
    uint64_t operator[](uint64_t i) const
    {
        return (first + i * step) % n;
    }
};

void for_blocks(dim3 grid, const std::function<void()> &one)
{
    const uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
    const drawn_order order(n);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t k = order[i];
        blockIdx = {(unsigned)(k % grid.x), (unsigned)(k / grid.x % grid.y),
                    (unsigned)(k / grid.x / grid.y)};
        one();
    }
}

char *shared_begin, *shared_end;

/* What one block leaves in shared memory is not there for the next. All kernels' memory is a few
 * MB, so this is done before a few blocks of some launches. */
void poison_shared(unsigned launch, unsigned block)
{
    enum { LAUNCHES = 16, BLOCKS = 4 };
    if (launch % LAUNCHES == 0 && block < BLOCKS)
        memset(shared_begin, 0xff, (size_t)(shared_end - shared_begin));
}

void start(fiber &one, unsigned number)
{
    one.thread = {number % blockDim.x, number / blockDim.x, 0};
    one.done = false;
    if (one.begun)
        return;
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack.get();
    one.context.uc_stack.ss_size = STACK_BYTES;
    one.context.uc_link = nullptr;
    makecontext(&one.context, enter, 0);
}

void run_block()
{
    const unsigned n = blockDim.x * blockDim.y;
    for (unsigned i = 0; i < n; i++)
        start(fibers[i], i);
    for (bool going = true; going;) {
        going = false;
        const drawn_order order(n);
        for (unsigned i = 0; i < n; i++) {
            running = &fibers[order[i]];
            if (running->done)
                continue;
            threadIdx = running->thread;
            resume();
            going = going || !running->done;
        }
    }
}
} // namespace

void __syncthreads()
{
    leave();
}

void stand_in_misaligned(const void *at, size_t bytes)
{
    fprintf(stderr, "stand-in: a kernel takes a pack at %p, which is no multiple of %zu\n", at,
            bytes);
    abort();
}

void stand_in_shared(char *begin, char *end)
{
    shared_begin = begin;
    shared_end = end;
    if (begin >= end) {
        fprintf(stderr, "stand-in: the linker has not kept the order of the kernels' memory\n");
        abort();
    }
}

void stand_in_threads(dim3 grid, dim3 block, const std::function<void()> &thread)
{
    gridDim = grid;
    blockDim = block;
    for_blocks(grid, [&] {
        const drawn_order order(block.x * block.y);
        for (unsigned i = 0; i < block.x * block.y; i++) {
            const unsigned k = (unsigned)order[i];
            threadIdx = {k % block.x, k / block.x, 0};
            thread();
        }
    });
}

void stand_in_blocks(dim3 grid, dim3 block, const std::function<void()> &thread)
{
    gridDim = grid;
    blockDim = block;
    body = &thread;
    if (fibers.size() < block.x * block.y)
        fibers.resize(block.x * block.y);
    static unsigned launches;
    unsigned blocks = 0;
    launches++;
    for_blocks(grid, [&] {
        poison_shared(launches, blocks++);
        run_block();
    });
}
