/* network.c - see network.h. */
#include "emulate/network.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/each.h"
#include "base/json.h"
#include "base/log.h"

/* A queue that holds what TCP has under way from all other hosts: it drops nothing. */
enum { QUEUE_BYTES = 64 << 20, DELAYED_PACKETS = 1000000, LINE = 160, OUTPUT = 256 * 1024 };

/* ---- namespaces ------------------------------------------------------------------------------ */

/* All kernels have Reno. BBR, which some prefer, measures a link anew after pauses, as between the
 * steps of a training, and keeps off it to do so. */
static bool take_reno(void)
{
    const int fd = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC);
    const bool taken = fd >= 0 && write(fd, "reno", 4) == 4;
    if (fd >= 0)
        close(fd);
    return taken;
}

/* A process that holds a namespace and does nothing else; a terminal's signals do not end it. */
static void hold(pid_t parent, int ready)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    const int error = unshare(CLONE_NEWNET) == 0 && take_reno() ? 0 : errno;
    if (write(ready, &error, sizeof error) != sizeof error || error != 0)
        _exit(1);
    for (;;)
        pause();
}

static dpb_status start_holder(pid_t *holder)
{
    int ready[2], error = 0;
    const pid_t parent = getpid();
    if (pipe2(ready, O_CLOEXEC) != 0)
        return dpb_fail(DPB_FAILED, "cannot open a pipe: %s", strerror(errno));
    const pid_t pid = fork();
    if (pid < 0)
        error = errno;
    if (pid == 0)
        hold(parent, ready[1]);
    close(ready[1]);
    if (pid > 0 && read(ready[0], &error, sizeof error) != sizeof error)
        error = ECHILD;
    close(ready[0]);
    *holder = pid > 0 ? pid : 0; /* the caller ends it */
    if (error == 0)
        return DPB_OK;
    return dpb_fail(error == EPERM ? DPB_UNSUPPORTED : DPB_FAILED,
                    "cannot make the network of a host: %s%s", strerror(error),
                    error == EPERM ? "; `dpbench hosts` needs root" : "");
}

static bool enter(pid_t holder)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)holder);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
}

/* Runs a program in a namespace, which reads `input` ("": nothing) and may write up to OUTPUT bytes
 * on both outputs, to `output`. Returns its exit code; -1: there is none. */
static int run_in(pid_t holder, const char *const *words, const char *input, char *output)
{
    int status = -1;
    const int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
    const size_t bytes = strlen(input);
    const bool written = in >= 0 && out >= 0 && pwrite(in, input, bytes, 0) == (ssize_t)bytes;
    const pid_t pid = written ? fork() : -1;
    if (pid == 0) {
        if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
            dup2(out, STDERR_FILENO) >= 0 && enter(holder))
            execvp(words[0], (char *const *)(uintptr_t)words);
        dprintf(STDERR_FILENO, "%s", strerror(errno));
        _exit(127);
    }
    if (pid > 0 && waitpid(pid, &status, 0) != pid)
        status = -1;
    const ssize_t length = out >= 0 ? pread(out, output, OUTPUT - 1, 0) : 0;
    output[length > 0 ? length : 0] = '\0';
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- lines for `ip` and `tc` ----------------------------------------------------------------- */

/* A script for `ip -batch` or `tc -batch` in one namespace. */
struct script {
    char *text;
    size_t length, capacity;
};

DPB_PRINTF(2, 3) static void add(struct script *script, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const size_t left = script->capacity - script->length;
    script->length += (size_t)vsnprintf(script->text + script->length, left, format, list);
    va_end(list);
    assert(script->length < script->capacity);
}

static dpb_status run_script(const char *program, pid_t holder, struct script *script)
{
    char *output = calloc(1, OUTPUT);
    DPB_TRY(dpb_allocated(output));
    const char *const words[] = {program, "-batch", "-", NULL};
    const int code = run_in(holder, words, script->text, output);
    output[strcspn(output, "\n")] = '\0';
    dpb_status status = DPB_OK;
    if (code == 127)
        status = dpb_fail(DPB_UNSUPPORTED,
                          "`dpbench hosts` needs `%s` of iproute2 in PATH (apt install iproute2): "
                          "%s",
                          program, output);
    else if (code != 0)
        status = dpb_fail(DPB_UNSUPPORTED, "`%s -batch` failed with %d in a new namespace: %s",
                          program, code, output);
    free(output);
    script->length = 0;
    script->text[0] = '\0';
    return status;
}

/* The bytes that tbf sends at once after a pause: free for the sender, so few, but a late timer
 * must not cost rate. So they are those of 1 ms, from 4 Gbit/s on 512 KiB, from 10 Gbit/s on those
 * of 0.4 ms; at least 16 KiB. */
static double burst_of(double bytes_per_s)
{
    return fmax(16 << 10, fmin(1e-3 * bytes_per_s, fmax(512 << 10, 0.4e-3 * bytes_per_s)));
}

static double uplink_rate(const struct dpb_hosts_plan *plan)
{
    return plan->uplink > 0 ? (double)plan->rate * plan->n / 2 / plan->uplink : INFINITY;
}

/* What TCP hands to an interface in one piece, as fits into the smallest burst with its headers.
 * tbf would cut a larger one into frames, which costs a busy machine the rate. */
static double piece_of(const struct dpb_hosts_plan *plan)
{
    double slowest = uplink_rate(plan);
    for (uint32_t i = 0; i < plan->n; i++)
        slowest = fmin(slowest, (double)plan->rates[i]);
    return fmin(64 << 10, 0.8 * burst_of(slowest / plan->dilation));
}

static void add_rate(const struct dpb_hosts_plan *plan, struct script *script, const char *device,
                     const char *place, double bytes_per_s)
{
    const double real = bytes_per_s / plan->dilation;
    add(script, "qdisc add dev %s %s tbf rate %.0fbit burst %.0f limit %d\n", device, place,
        8 * real, burst_of(real), QUEUE_BYTES);
}

/* ---- up and down ----------------------------------------------------------------------------- */

static uint32_t half_of(const struct dpb_hosts_plan *plan, uint32_t host)
{
    return plan->uplink > 0 && host >= plan->n / 2;
}

static dpb_status plug(const struct dpb_hosts_network *network, struct script *script)
{
    const struct dpb_hosts_plan *plan = network->plan;
    for (uint32_t i = 0; i < (plan->uplink > 0 ? 2 : 1); i++)
        add(script, "link add switch%u type bridge\nlink set switch%u up\n", i, i);
    if (plan->uplink > 0)
        add(script, "link add uplink0 type veth peer name uplink1\n"
                    "link set uplink0 master switch0 up\nlink set uplink1 master switch1 up\n");
    for (uint32_t i = 0; i < plan->n; i++)
        add(script,
            "link add cable%u type veth peer name eth0 netns %d\n"
            "link set cable%u master switch%u up\n",
            i + 1, (int)network->holders[i], i + 1, half_of(plan, i));
    DPB_TRY(run_script("ip", network->holders[plan->n], script));
    for (uint32_t i = 0; i < plan->n; i++) {
        add(script,
            "link set lo up\naddress add " DPB_HOSTS_PREFIX "%u/24 dev eth0\n"
            "link set eth0 gso_max_size %.0f up\n",
            i + 1, piece_of(plan));
        DPB_TRY(run_script("ip", network->holders[i], script));
    }
    return DPB_OK;
}

static dpb_status shape(const struct dpb_hosts_network *network, struct script *script)
{
    const struct dpb_hosts_plan *plan = network->plan;
    for (uint32_t i = 0; i < plan->n; i++) {
        add_rate(plan, script, "eth0", "root", (double)plan->rates[i]);
        DPB_TRY(run_script("tc", network->holders[i], script));
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        char device[32];
        snprintf(device, sizeof device, "cable%u", i + 1);
        if (plan->latency_ns > 0)
            add(script, "qdisc add dev %s root handle 1: netem delay %.3fus limit %d\n", device,
                (double)plan->latency_ns * 1e-3 * plan->dilation, DELAYED_PACKETS);
        add_rate(plan, script, device, plan->latency_ns > 0 ? "parent 1:1 handle 10:" : "root",
                 (double)plan->rates[i]);
    }
    for (uint32_t i = 0; plan->uplink > 0 && i < 2; i++)
        add_rate(plan, script, i == 0 ? "uplink0" : "uplink1", "root", uplink_rate(plan));
    return run_script("tc", network->holders[plan->n], script);
}

/* Nothing else of the kernel's delays packets. */
static dpb_status find_delay(pid_t holder)
{
    static const char *const words[] = {"tc",   "qdisc", "add",   "dev", "lo",
                                        "root", "netem", "delay", "1ms", NULL};
    char *output = calloc(1, OUTPUT);
    DPB_TRY(dpb_allocated(output));
    const int code = run_in(holder, words, "", output);
    free(output);
    if (code == 0 || code == 127) /* without tc, run_script names it */
        return DPB_OK;
    return dpb_fail(DPB_UNSUPPORTED,
                    "--latency: this kernel has no netem (CONFIG_NET_SCH_NETEM), which delays "
                    "packets: try `modprobe sch_netem`, or leave --latency out");
}

static dpb_status build(struct dpb_hosts_network *network, struct script *script)
{
    const struct dpb_hosts_plan *plan = network->plan;
    for (uint32_t i = 0; i <= plan->n; i++)
        DPB_TRY(start_holder(&network->holders[i]));
    if (plan->latency_ns > 0)
        DPB_TRY(find_delay(network->holders[plan->n]));
    DPB_TRY(plug(network, script));
    return shape(network, script);
}

dpb_status dpb_hosts_network_up(const struct dpb_hosts_plan *plan,
                                struct dpb_hosts_network *network)
{
    *network = (struct dpb_hosts_network){.plan = plan};
    struct script script = {.capacity = (plan->n + 4) * 2 * LINE};
    script.text = calloc(script.capacity, 1);
    dpb_status status = dpb_allocated(script.text);
    DPB_THEN(status, build(network, &script));
    free(script.text);
    if (status != DPB_OK)
        dpb_hosts_network_down(network);
    return status;
}

void dpb_hosts_network_down(struct dpb_hosts_network *network)
{
    for (uint32_t i = 0; network->plan && i <= network->plan->n; i++)
        if (network->holders[i] > 0) {
            kill(network->holders[i], SIGKILL);
            waitpid(network->holders[i], NULL, 0);
        }
    *network = (struct dpb_hosts_network){0};
}

/* ---- what the queues dropped ----------------------------------------------------------------- */

static void check_queues(pid_t holder, const char *whose, char *output)
{
    static const char *const words[] = {"tc", "-s", "-j", "qdisc", "show", NULL};
    const int code = run_in(holder, words, "", output);
    json_t *queues = code == 0 ? json_loads(output, 0, NULL) : NULL;
    if (!queues)
        dpb_warn("hosts_unknown", "whether %s dropped packets is not known: `tc -s -j` says: %s",
                 whose, output);
    dpb_each_item(queues, i, queue) {
        const double drops = dpb_json_number(queue, "drops");
        if (dpb_json_true(queue, "root") && drops > 0)
            dpb_warn("hosts_dropped",
                     "the queue of %s, %s, dropped %.0f packets, which TCP sent again: that time "
                     "is TCP's, not the strategy's",
                     whose, dpb_json_text(queue, "dev", "?"), drops);
    }
    json_decref(queues);
}

void dpb_hosts_network_check(const struct dpb_hosts_network *network)
{
    char *output = calloc(1, OUTPUT), whose[32];
    for (uint32_t i = 0; output && i <= network->plan->n; i++) {
        snprintf(whose, sizeof whose, i < network->plan->n ? "host %u" : "the switch", i + 1);
        check_queues(network->holders[i], whose, output);
    }
    free(output);
}
