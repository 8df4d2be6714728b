/* shim.cc - see shim.h. */
#include "shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#if GLOO_HAVE_TRANSPORT_IBVERBS && __has_include(<infiniband/verbs.h>)
#include <gloo/transport/ibverbs/device.h>
#define HAVE_IBVERBS 1
#else
#define HAVE_IBVERBS 0
#endif

namespace
{

/* The caller keeps the deadlines, which know of suspended jobs; Gloo's own, after which nothing can
 * go on, are far behind them. */
constexpr auto far_away = std::chrono::hours(24 * 30);

const dpb_vec_ops *vec;

/* The job's store. Gloo waits in `get` for a value that is not there yet. */
class Store : public gloo::rendezvous::Store
{
  public:
    Store(const dpb_store_ops *store, size_t most_bytes) : store_(store), most_bytes_(most_bytes)
    {
    }
    void set(const std::string &key, const std::vector<char> &data) override
    {
        check(store_->put(name(key).c_str(), data.data(), data.size()));
    }
    std::vector<char> get(const std::string &key) override
    {
        std::vector<char> data(most_bytes_);
        size_t bytes = data.size();
        check(store_->get(name(key).c_str(), data.data(), &bytes, 0));
        data.resize(bytes);
        return data;
    }
    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys)
            get(key);
    }
    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override
    {
        wait(keys);
    }
    dpb_status status = DPB_OK; /* not DPB_OK: the message is written */

  private:
    static std::string name(const std::string &key)
    {
        return "gloo/" + key;
    }
    void check(dpb_status now)
    {
        if (now == DPB_OK)
            return;
        status = now;
        throw std::runtime_error("the store failed");
    }
    const dpb_store_ops *store_;
    size_t most_bytes_;
};

/* Gloo's message, without the place in its source. */
std::string text_of(const std::exception &error)
{
    std::string text = error.what();
    size_t end = text.find("] ");
    return !text.empty() && text[0] == '[' && end != std::string::npos ? text.substr(end + 2)
                                                                       : text;
}

void say(char why[SHIM_TEXT_BYTES], const std::string &text)
{
    why[text.copy(why, SHIM_TEXT_BYTES - 1)] = '\0';
}

const char unknown[] = "an exception of no known type";

/* ---- sums ---------------------------------------------------------------------------------- */

template <dpb_dtype type> void sum_into(void *to, const void *one, const void *other, size_t n)
{
    void *const dst[] = {to};
    const void *const sources[] = {one, other};
    vec->sum(type, dst, 1, sources, 2, n);
}

template <typename T, dpb_dtype type> void add(T *to, const T *other, size_t n)
{
    sum_into<type>(to, to, other, n);
}

} // namespace

/* With ibverbs a peer that is through writes into the memory of its next all-gather here. It ends
 * that one when this rank has begun it, too: so two take turns. */
enum { GATHERS = 2 };

struct shim {
    shim_args args;
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::vector<std::function<void()>> calls;
    std::vector<char> staged; /* ibverbs: what the one all-reduce works on */
    std::function<void()> reduce_staged;
    std::vector<char> own; /* ibverbs: what an all-gather sends; `staged` is then all workers' */
    std::function<void()> gather_own[GATHERS];
    uint64_t n_gathered;
};

namespace
{

template <typename T, dpb_dtype type>
std::function<void()> make_bucket(const shim &shim, T *data, uint64_t n)
{
    static const gloo::ReductionFunction<T> sum(gloo::CUSTOM, &add<T, type>);
    std::vector<T *> pointers{data};
    if (shim.args.algorithm == SHIM_RING_CHUNKED) {
        auto made = std::make_shared<gloo::AllreduceRingChunked<T>>(shim.context, pointers,
                                                                    static_cast<int>(n), &sum);
        return [made] { made->run(); };
    }
    if (shim.args.algorithm == SHIM_HALVING_DOUBLING) {
        auto made = std::make_shared<gloo::AllreduceHalvingDoubling<T>>(shim.context, pointers,
                                                                        static_cast<int>(n), &sum);
        return [made] { made->run(); };
    }
    auto options = std::make_shared<gloo::AllreduceOptions>(shim.context);
    options->setAlgorithm(shim.args.algorithm == SHIM_BCUBE
                              ? gloo::detail::AllreduceOptionsImpl::BCUBE
                              : gloo::detail::AllreduceOptionsImpl::RING);
    options->setOutput(data, n);
    options->setReduceFunction(sum_into<type>);
    return [options] { gloo::allreduce(*options); };
}

/* The same through `staged`. Behind a shorter bucket `staged` is zero. */
template <typename T, dpb_dtype type>
std::function<void()> make_staged_bucket(shim &shim, T *data, uint64_t n)
{
    if (!shim.reduce_staged) {
        shim.staged.resize(shim.args.bucket_elements * sizeof(T));
        shim.reduce_staged =
            make_bucket<T, type>(shim, static_cast<T *>(static_cast<void *>(shim.staged.data())),
                                 shim.args.bucket_elements);
    }
    return [&shim, data, bytes = n * sizeof(T)] {
        memcpy(shim.staged.data(), data, bytes);
        memset(shim.staged.data() + bytes, 0, shim.staged.size() - bytes);
        shim.reduce_staged();
        memcpy(data, shim.staged.data(), bytes);
    };
}

template <typename T, dpb_dtype type>
std::function<void()> make_any_bucket(shim &shim, void *data, uint64_t n)
{
    return shim.args.transport == SHIM_TCP
               ? make_bucket<T, type>(shim, static_cast<T *>(data), n)
               : make_staged_bucket<T, type>(shim, static_cast<T *>(data), n);
}

/* The first element of a slice. */
uint64_t begin_of(const shim &shim, uint64_t n, int slice)
{
    return n * static_cast<uint64_t>(slice) / shim.args.n_workers;
}

/* Gloo leaves the sum where the memory begins, and other values behind it. */
template <typename T, dpb_dtype type>
std::function<void()> make_sum_of_slices(const shim &shim, void *data, uint64_t n)
{
    static const gloo::ReductionFunction<T> sum(gloo::CUSTOM, &add<T, type>);
    T *const all = static_cast<T *>(data);
    std::vector<int> lengths;
    for (int rank = 0; rank < shim.context->size; rank++)
        lengths.push_back(static_cast<int>(begin_of(shim, n, rank + 1) - begin_of(shim, n, rank)));
    auto made = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(
        shim.context, std::vector<T *>{all}, static_cast<int>(n), lengths, &sum);
    const uint64_t begin = begin_of(shim, n, shim.context->rank),
                   end = begin_of(shim, n, shim.context->rank + 1);
    return [made, all, n, begin, end] {
        made->run();
        memmove(all + begin, all, (end - begin) * sizeof(T));
        memset(all, 0, begin * sizeof(T));
        memset(all + end, 0, (n - end) * sizeof(T));
    };
}

std::function<void()> make_gift_of_slices(const shim &shim, const shim_part &part)
{
    const size_t size = dpb_dtype_size(part.type);
    std::vector<size_t> bytes;
    for (int rank = 0; rank < shim.context->size; rank++)
        bytes.push_back((begin_of(shim, part.n, rank + 1) - begin_of(shim, part.n, rank)) * size);
    auto options = std::make_shared<gloo::AllgathervOptions>(shim.context);
    options->setOutput(static_cast<char *>(part.data), bytes);
    return [options] { gloo::allgatherv(*options); };
}

std::function<void()> make_broadcast(const shim &shim, const shim_part &part)
{
    auto options = std::make_shared<gloo::BroadcastOptions>(shim.context);
    options->setOutput(static_cast<char *>(part.data), part.n * dpb_dtype_size(part.type));
    options->setRoot(0);
    return [options] { gloo::broadcast(*options); };
}

std::function<void()> make_all_to_all(const shim &shim, const shim_part &part)
{
    const size_t bytes = part.n * dpb_dtype_size(part.type);
    auto options = std::make_shared<gloo::AlltoallOptions>(shim.context);
    options->setInput(static_cast<char *>(part.data), bytes);
    options->setOutput(static_cast<char *>(part.into), bytes);
    return [options] { gloo::alltoall(*options); };
}

template <typename T, dpb_dtype type>
std::function<void()> make_sum(shim &shim, enum shim_kind kind, const shim_part &part)
{
    return kind == SHIM_SUM_SLICES ? make_sum_of_slices<T, type>(shim, part.data, part.n)
                                   : make_any_bucket<T, type>(shim, part.data, part.n);
}

std::function<void()> make_call(shim &shim, enum shim_kind kind, const shim_part &part)
{
    if (kind == SHIM_GIVE_SLICES)
        return make_gift_of_slices(shim, part);
    if (kind == SHIM_BROADCAST)
        return make_broadcast(shim, part);
    if (kind == SHIM_ALL_TO_ALL)
        return make_all_to_all(shim, part);
    if (part.type == DPB_FP64)
        return make_sum<double, DPB_FP64>(shim, kind, part);
    if (part.type == DPB_FP32)
        return make_sum<float, DPB_FP32>(shim, kind, part);
    if (part.type == DPB_FP16)
        return make_sum<uint16_t, DPB_FP16>(shim, kind, part);
    return make_sum<uint16_t, DPB_BF16>(shim, kind, part);
}

void open_gathers(shim &shim, uint64_t longest)
{
    const uint64_t all = shim.args.n_workers * longest;
    if (shim.args.transport == SHIM_TCP) {
        shim.staged.resize(all);
        return;
    }
    shim.own.resize(longest);
    shim.staged.resize(GATHERS * all);
    for (uint64_t i = 0; i < GATHERS; i++) {
        const std::vector<const char *> pointers{shim.own.data()};
        auto made = std::make_shared<gloo::AllgatherRing<char>>(
            shim.context, pointers, shim.staged.data() + i * all, static_cast<int>(longest));
        shim.gather_own[i] = [made] { made->run(); };
    }
}

/* Returns where the bytes of the first worker are; those of the next are *apart behind. */
const char *gather(shim &shim, char *own, uint64_t bytes, uint64_t *apart)
{
    const uint64_t turn = shim.n_gathered++ % GATHERS;
    if (shim.args.transport != SHIM_TCP) {
        *apart = shim.own.size();
        memcpy(shim.own.data(), own, bytes);
        shim.gather_own[turn]();
        return shim.staged.data() + turn * shim.args.n_workers * *apart;
    }
    gloo::AllgatherOptions options(shim.context);
    options.setInput(own, bytes);
    options.setOutput(shim.staged.data(), shim.args.n_workers * bytes);
    gloo::allgather(options);
    *apart = bytes;
    return shim.staged.data();
}

std::shared_ptr<gloo::transport::Device> make_device(const shim_args &args)
{
    if (args.transport == SHIM_TCP)
        return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(args.address));
#if HAVE_IBVERBS
    return gloo::transport::ibverbs::CreateDevice({args.device, args.port, args.gid_index});
#else
    throw std::runtime_error("it was built without ibverbs");
#endif
}

/* Over TCP. A pair that is broken throws whatever is asked of it. */
std::string lost_ranks(const shim &shim)
{
    std::string list;
    char byte;
    for (int rank = 0; shim.args.transport == SHIM_TCP && rank < shim.context->size; rank++)
        try {
            if (rank != shim.context->rank)
                shim.context->getPair(rank)->recv(shim.context->createUnboundBuffer(&byte, 1).get(),
                                                  UINT64_MAX, 0, 1);
        } catch (const std::exception &) {
            list += (list.empty() ? "" : ", ") + std::to_string(rank);
        }
    return list;
}

} // namespace

/* ---- what C calls -------------------------------------------------------------------------- */

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)
const char shim_version[] =
    VALUE_OF(GLOO_VERSION_MAJOR) "." VALUE_OF(GLOO_VERSION_MINOR) "." VALUE_OF(GLOO_VERSION_PATCH);

const bool shim_has_ibverbs = HAVE_IBVERBS;

/* libgloo.so.0.5.0 */
void shim_loaded_version(char *text, size_t size)
{
    void (*all_reduce)(const gloo::AllreduceOptions &) = gloo::allreduce;
    Dl_info info;
    char *path = dladdr(reinterpret_cast<void *>(all_reduce), &info) != 0
                     ? realpath(info.dli_fname, nullptr)
                     : nullptr;
    const std::string name = path ? path : "", mark = "libgloo.so.";
    size_t at = name.rfind(mark);
    snprintf(text, size, "%s", at == std::string::npos ? "?" : name.c_str() + at + mark.size());
    free(path);
}

dpb_status shim_open(const shim_args *args, shim **opened, char why[SHIM_TEXT_BYTES])
{
    size_t most_bytes = 256 + args->n_workers * gloo::transport::Address::kMaxByteSize;
    Store store(args->host->store, most_bytes);
    why[0] = '\0';
    vec = args->host->vec;
    try {
        auto made = std::make_unique<shim>();
        made->args = *args;
        made->device = make_device(*args);
        made->context = std::make_shared<gloo::rendezvous::Context>(
            static_cast<int>(args->rank), static_cast<int>(args->n_workers));
        made->context->setTimeout(far_away);
        made->context->connectFullMesh(store, made->device);
        made->calls.resize(args->n_calls);
        if (args->gathers)
            open_gathers(*made, args->bucket_elements * sizeof(float));
        *opened = made.release();
        return DPB_OK;
    } catch (const std::exception &error) {
        if (store.status == DPB_OK)
            say(why, text_of(error));
        return store.status == DPB_OK ? DPB_PEER : store.status;
    } catch (...) {
        say(why, unknown);
        return DPB_FAILED;
    }
}

dpb_status shim_prepare(shim *shim, uint64_t call, enum shim_kind kind, const shim_part *part,
                        char why[SHIM_TEXT_BYTES])
{
    try {
        shim->calls.at(call) = make_call(*shim, kind, *part);
        return DPB_OK;
    } catch (const std::exception &error) {
        say(why, text_of(error));
        return DPB_FAILED;
    }
}

static dpb_status call(shim *shim, const std::function<void()> &collective,
                       char why[SHIM_TEXT_BYTES])
{
    try {
        collective();
        return DPB_OK;
    } catch (const std::exception &error) {
        std::string lost = lost_ranks(*shim);
        say(why,
            (lost.empty() ? "" : "lost the connection to rank " + lost + ": ") + text_of(error));
    } catch (...) {
        say(why, unknown);
    }
    return DPB_PEER;
}

dpb_status shim_make(shim *shim, uint64_t number, char why[SHIM_TEXT_BYTES])
{
    return call(shim, shim->calls[number], why);
}

dpb_status shim_gather(shim *shim, void *first, uint64_t stride, uint64_t bytes,
                       char why[SHIM_TEXT_BYTES])
{
    return call(
        shim,
        [=] {
            char *messages = static_cast<char *>(first);
            const uint64_t rank = shim->args.rank;
            uint64_t apart;
            const char *brought = gather(*shim, messages + rank * stride, bytes, &apart);
            for (uint64_t i = 0; i < shim->args.n_workers; i++)
                if (i != rank)
                    memcpy(messages + i * stride, brought + i * apart, bytes);
        },
        why);
}

void shim_break(shim *shim)
{
    try {
        shim->context->closeConnections();
    } catch (const std::exception &) { /* they are closed */
    }
}

/* By ibverbs the receives that a connection has posted are flushed while it is destroyed. Gloo's
 * thread then works on a connection that is half gone (github.com/pytorch/gloo/issues/247). */
void shim_close(shim *shim)
{
    if (shim && shim->args.transport != SHIM_TCP)
        return;
    try {
        delete shim;
    } catch (const std::exception &) { /* it is of no use any more, whatever it was */
    }
}
