/*
 * cuda.c - the cuda device: training on one NVIDIA GPU a worker, fp32, tf32, bf16 or fp16 (fp32
 * master weights and sums; of the last two activations, their gradients, and convolutions'
 * gradients by weights before they are added up).
 *
 * This file is the plugin: options, opening, closing, versions. program.h describes how a graph
 * becomes a program; docs/devices-cuda.md describes the device and its limits.
 */
#include <stdio.h>
#include <stdlib.h>

#include "hooks.h"
#include "lib/cuda/driver.h"
#include "nvml.h"
#include "streams.h"

/* The first of which the kernels are compiled for (mk/cuda.mk), and the first that computes in
 * bf16. */
enum { LEAST_MAJOR = 8 };

static const char *const layouts[] = {[LAYOUT_NHWC] = "nhwc", [LAYOUT_NCHW] = "nchw", NULL};
static const char *const services[] = {
    [MPS_AUTO] = "auto", [MPS_REQUIRE] = "require", [MPS_NO] = "no", NULL};

static const struct dpb_option option_table[] = {
    {"ids", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct options, ids),
     "GPUs of this machine's places, by CUDA's numbers: 0,2. The same number twice puts two "
     "places on one. Empty: place i has GPU i.",
     NULL},
    {"graphs", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL, offsetof(struct options, graphs),
     "Whether passes are captured as CUDA graphs and launched as a whole.", NULL},
    {"tuning", DPB_OPT_STRING, NULL, "auto", 0, 0, NULL, offsetof(struct options, tuning),
     "File in which the fastest algorithm of every convolution and product is kept; auto: "
     "dpbench-cuda-tuning in the user's cache directory; no: nothing is tried or kept, cuDNN's and "
     "cuBLASLt's own estimates are taken.",
     NULL},
    {"workspace", DPB_OPT_SIZE, "bytes", "1GiB", 0, 0, NULL, offsetof(struct options, workspace),
     "Device memory that an algorithm of a convolution, or attention's scores, may take to work "
     "with.",
     NULL},
    {"layout", DPB_OPT_CHOICE, NULL, "nhwc", 0, 0, layouts, offsetof(struct options, layout),
     "How activations lie in memory: nhwc, which tensor cores want, or nchw, to compare.", NULL},
    {"mps", DPB_OPT_CHOICE, NULL, "auto", 0, 0, services, offsetof(struct options, mps),
     "Whether workers that share a GPU are to run at once, by CUDA's Multi-Process Service: "
     "require, or the run is refused; no: refused where the service is there; auto: either, and "
     "the result says which. dpbench starts no service.",
     NULL},
    {NULL, DPB_OPT_INT, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- which GPU ----------------------------------------------------------------------------- */

/* The number at place `index` of a list like "0,2"; -1: there is none, -2: up to there that is no
 * list. */
static int listed_id(const char *ids, uint32_t index)
{
    const char *at = ids;
    for (uint32_t i = 0;; i++) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > 1023 || (*end != ',' && *end != 0))
            return -2;
        if (i == index)
            return (int)id;
        if (*end == 0)
            return -1;
        at = end + 1;
    }
}

/* As listed_id. */
static int wanted_id(const struct options *options, uint32_t index)
{
    return options->ids[0] ? listed_id(options->ids, index) : (int)index;
}

static dpb_status choose_device(const struct options *options, uint32_t index, int *id)
{
    int n = 0;
    CUDA_TRY(cudaGetDeviceCount(&n));
    *id = wanted_id(options, index);
    if (*id == -1)
        return cuda_host->fail(
            DPB_USAGE,
            "device.ids = '%s' has no GPU for place %u of this machine (from 0); "
            "name one more, or take fewer workers",
            options->ids, index);
    if (*id >= n)
        return cuda_host->fail(
            DPB_USAGE,
            "device cuda: place %u of this machine (from 0) would have GPU %d, but "
            "there are %d; take fewer workers, or let some share one by device.ids",
            index, *id, n);
    return DPB_OK;
}

/* The driver's answer is for this process, which has met the service's daemon, or none, when it
 * initialised CUDA. */
static dpb_status check_service(const struct options *options, int id, bool known, bool served)
{
    if (options->mps == MPS_AUTO || (known && served == (options->mps == MPS_REQUIRE)))
        return DPB_OK;
    if (!known)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device.mps = %s: this driver does not tell whether CUDA's "
                               "Multi-Process Service serves GPU %d; take a driver for CUDA 12.8 "
                               "or later, or device.mps = auto",
                               services[options->mps], id);
    if (options->mps == MPS_REQUIRE)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device.mps = require: CUDA's Multi-Process Service does not serve "
                               "GPU %d; start it by `nvidia-cuda-mps-control -d`, with the "
                               "CUDA_MPS_PIPE_DIRECTORY of this process",
                               id);
    return cuda_host->fail(DPB_UNSUPPORTED,
                           "device.mps = no: CUDA's Multi-Process Service serves GPU %d; set "
                           "CUDA_MPS_PIPE_DIRECTORY to an empty directory, where CUDA finds no "
                           "daemon, or end the service by `echo quit | nvidia-cuda-mps-control`",
                           id);
}

static dpb_status look_at(struct device *d)
{
    struct cudaDeviceProp about;
    CUDA_TRY(cudaSetDevice(d->id));
    CUDA_TRY(cudaGetDeviceProperties(&about, d->id));
    CUDA_TRY(cudaDeviceGetPCIBusId(d->pci, (int)sizeof d->pci, d->id));
    snprintf(d->name, sizeof d->name, "%.63s", about.name);
    if (about.major < LEAST_MAJOR)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: GPU %d (%s) has compute capability %d.%d; %d.0 is the "
                               "least that will do",
                               d->id, d->name, about.major, about.minor, LEAST_MAJOR);
    return DPB_OK;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void close_device(void *device)
{
    struct device *d = device;
    if (!d)
        return;
    if (d->blas)
        cublasLtDestroy(d->blas);
    if (d->cudnn)
        cudnnDestroy(d->cudnn);
    if (d->copies)
        cudaStreamDestroy(d->copies);
    if (d->behind)
        cudaEventDestroy(d->behind);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    free(d);
}

static dpb_status open_libraries(struct device *d)
{
    CUDA_TRY(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&d->behind, cudaEventDisableTiming));
    DPB_TRY(cuda_check_cudnn(NULL, NULL, "cudnnCreate", cudnnCreate(&d->cudnn)));
    DPB_TRY(cuda_check_cudnn(NULL, NULL, "cudnnSetStream", cudnnSetStream(d->cudnn, d->stream)));
    return cuda_check_blas(NULL, NULL, "cublasLtCreate", cublasLtCreate(&d->blas));
}

static struct options options_of(const void *options)
{
    static const struct options defaults = {
        .ids = "", .tuning = "auto", .graphs = 1, .workspace = UINT64_C(1) << 30};
    return options ? *(const struct options *)options : defaults;
}

/* Refuses options that are wrong on any GPU. */
static dpb_status check_options(const struct options *options)
{
    if (options->ids[0] && listed_id(options->ids, UINT32_MAX) == -2)
        return cuda_host->fail(DPB_USAGE,
                               "device.ids = '%s' is no list of numbers with commas between them",
                               options->ids);
    return DPB_OK;
}

static dpb_status bytes_moved(const void *options, const struct dpb_compile_args *args,
                              double *bytes)
{
    const struct device device = {.options = options_of(options)};
    DPB_TRY(check_options(&device.options));
    return cuda_count(&device, args, bytes);
}

static dpb_status open_device(const void *options, const struct dpb_device_args *args,
                              void **device)
{
    const char *missing = cuda_driver_missing(CUDART_VERSION);
    if (missing)
        return cuda_host->fail(DPB_UNSUPPORTED, "device cuda cannot run here: %s", missing);
    struct options given = options_of(options);
    DPB_TRY(check_options(&given));
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return cuda_no_memory();
    d->seed = args->seed;
    d->options = given;
    dpb_status status = choose_device(&d->options, args->index, &d->id);
    DPB_THEN(status, look_at(d));
    DPB_THEN(status, open_libraries(d));
    if (status != DPB_OK) {
        close_device(d);
        return status;
    }
    *device = d;
    return DPB_OK;
}

static const char *pci_address(void *device)
{
    const struct device *d = device;
    return d->pci;
}

static dpb_status look_at_sharing(const void *options, uint32_t index, struct dpb_sharing *sharing)
{
    const struct options given = options_of(options);
    const int id = wanted_id(&given, index);
    int served = 0;
    const cudaError_t error = id < 0 ? cudaErrorInvalidDevice
                                     : cudaDeviceGetAttribute(&served, cudaDevAttrMpsEnabled, id);
    *sharing = (struct dpb_sharing){.known = error == cudaSuccess};
    if (!sharing->known)
        cudaGetLastError();
    if (error == cudaErrorInvalidDevice) /* `open` refuses it, on the machine that has the place */
        return DPB_OK;
    if (sharing->known && served)
        snprintf(sharing->service, sizeof sharing->service, "MPS");
    return check_service(&given, id, sharing->known, served);
}

static const char *no_capture(void *device)
{
    const struct device *d = device;
    return d->options.graphs ? NULL : "device.graphs = no";
}

static const struct dpb_device_ops ops = {
    .open = open_device,
    .memory_needed = cuda_memory_needed,
    .bytes_moved = bytes_moved,
    .compile = cuda_compile,
    .forward = cuda_forward,
    .backward = cuda_backward,
    .inspect = cuda_inspect,
    .release = cuda_release,
    .close = close_device,
    .profile = cuda_profile,
    .pci_address = pci_address,
    .links = &cuda_links,
    .queues = &cuda_queues,
    .follow = cuda_follow,
    .drain = cuda_drain,
    .times = cuda_times,
    .finite = cuda_finite,
    .no_capture = no_capture,
    .monitor = &cuda_monitor,
    .sharing = look_at_sharing,
};

/* ---- plugin -------------------------------------------------------------------------------- */

enum { VERSION_BYTES = 32 };

/* tests/gpu/libraries looks for this text in the file. */
#define TEXT(number) #number
#define TEXT_OF(number) TEXT(number)
static const char built_for[] =
    "built for cuDNN " TEXT_OF(CUDNN_MAJOR) "." TEXT_OF(CUDNN_MINOR) "." TEXT_OF(CUDNN_PATCHLEVEL);
static char built[2][VERSION_BYTES], loaded[3][VERSION_BYTES];

static const struct dpb_library libraries[] = {
    {.name = "CUDA runtime", .built = built[0], .loaded = loaded[0]},
    {.name = "cuDNN", .built = &built_for[sizeof "built for cuDNN"], .loaded = loaded[1]},
    {.name = "cuBLASLt", .built = built[1], .loaded = loaded[2]},
    {.name = NULL},
};

static const char *missing_here(void)
{
    return cuda_driver_missing(CUDART_VERSION);
}

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(DEVICE, ops),
    .capabilities =
        DPB_DEVICE_FP32 | DPB_DEVICE_BF16 | DPB_DEVICE_TF32 | DPB_DEVICE_FP16 | DPB_DEVICE_POOL,
    .name = "cuda",
    .version = DPB_VERSION,
    .summary = "an NVIDIA GPU, by cuDNN, cuBLASLt and own kernels: fp32, tf32, bf16 and fp16",
    .options = option_table,
    .options_size = sizeof(struct options),
    .libraries = libraries,
    .missing = missing_here,
};

static void write_version(char *text, size_t version, size_t major_unit, size_t minor_unit)
{
    snprintf(text, VERSION_BYTES, "%zu.%zu.%zu", version / major_unit,
             version % major_unit / minor_unit, version % minor_unit);
}

static void write_versions(void)
{
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    write_version(built[0], CUDART_VERSION, 1000, 10);
    write_version(loaded[0], (size_t)runtime, 1000, 10);
    write_version(loaded[1], cudnnGetVersion(), 10000, 100);
    write_version(built[1], CUBLAS_VERSION, 10000, 100);
    write_version(loaded[2], cublasLtGetVersion(), 10000, 100);
}

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    cuda_host = host;
    write_versions();
    if (CUDNN_VERSION / 10000 != cudnnGetVersion() / 10000) {
        host->fail(DPB_FAILED,
                   "device cuda: built for cuDNN %s, but cuDNN %s was loaded; rebuild it or mend "
                   "LD_LIBRARY_PATH",
                   libraries[1].built, loaded[1]);
        return NULL;
    }
    return &plugin;
}
