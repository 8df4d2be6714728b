/*
 * pass.c - forward and backward. A pass's own words are copied to the device, then a list of steps
 * is enqueued, or the graph that was captured from it is launched. The loop's thread waits for
 * flags that the GPU raises in the host's memory, and lets the strategy move on meanwhile.
 *
 * In backward a second stream copies gradients to the host. It waits for the step that finishes a
 * piece of the arena, copies the piece and raises the piece's flag; meanwhile the first stream
 * continues. The loop's thread hands a piece to the strategy when it sees its flag. A flag is
 * raised to the pass's serial number, which lies in device memory, so a captured graph raises it as
 * well.
 *
 * If core takes events, the host does not wait for backward. Core gets an event behind each piece
 * at once; a captured graph records these events, too. The host enqueues the next forward before
 * this work is done. The second stream copies the samples of that forward meanwhile: the forward
 * before has read its own, since the host has waited for its loss.
 *
 * If core asks for it (dpb_pass.captures), the strategy's work is captured with backward. During
 * the capture the strategy gets the pieces, with events of the capture. From then on its streams
 * are captured, too, and the main stream waits for them at the end of the capture.
 */
#include <stdatomic.h>

#include "hooks.h"
#include "lib/device/refuse.h"
#include "plan.h"
#include "streams.h"

/* At a flag, before the strategy moves on again and the stream is asked whether it has failed. */
enum { LOOK_NS = 20000 };

/* ---- enqueueing ---------------------------------------------------------------------------- */

static dpb_status run_step(const struct program *p, const struct step *step)
{
    DPB_TRY(step->run(p, step));
    return cuda_check(p, step->node, step->what, cudaPeekAtLastError());
}

static dpb_status pack(const struct program *p)
{
    if (p->n_packings > 0)
        cuda_pack_weights(p->device->stream, p->type, p->packings->data, p->n_packings,
                          p->weights.tensor->data);
    return cuda_check(p, NULL, "packing of weights", cudaPeekAtLastError());
}

/* The main stream waits until the second has done all enqueued work. */
static dpb_status join(const struct program *p)
{
    CUDA_TRY(cudaEventRecord(p->joined, p->device->copies));
    return CUDA_CALL(cudaStreamWaitEvent(p->device->stream, p->joined, 0));
}

/* How a list is enqueued: to be done, or to be captured, alone or with the exchange. */
enum way { DONE, CAPTURED, CAPTURED_EXCHANGED };

static dpb_status enqueue_forward(struct program *p, unsigned when, enum way way,
                                  const struct dpb_hooks *hooks)
{
    cudaStream_t stream = p->device->stream;
    DPB_TRY(cuda_account_begin(p, false));
    if (when & WHEN_REPACKING) {
        DPB_TRY(pack(p));
        DPB_TRY(cuda_account_packing(p));
    }
    for (size_t i = 0; i < p->forward.n; i++) {
        if (!(p->forward.steps[i].when & when))
            continue;
        DPB_TRY(run_step(p, &p->forward.steps[i]));
        DPB_TRY(cuda_account_step(p, false, i));
        if (way == DONE)
            DPB_TRY(hooks->progress(hooks->context));
    }
    if (when & WHEN_TRAINING)
        DPB_TRY(cuda_download(&p->statistics, 0, p->graph->n_state_elements, stream));
    cuda_raise(stream, p->words->data, &p->control->forward_done);
    return cuda_check(p, NULL, "flag of forward", cudaPeekAtLastError());
}

/* The copies of a piece begin when all work enqueued on the main stream so far is done. */
static dpb_status send_piece(struct program *p, size_t piece)
{
    cudaStream_t copies = p->device->copies;
    CUDA_TRY(cudaEventRecord(p->piece_ready, p->device->stream));
    CUDA_TRY(cudaStreamWaitEvent(copies, p->piece_ready, 0));
    DPB_TRY(cuda_download(&p->gradients, p->pieces[piece].begin, p->pieces[piece].end, copies));
    cuda_raise(copies, p->words->data, &p->control->piece_done[piece]);
    return cuda_check(p, NULL, "flag of a piece", cudaPeekAtLastError());
}

/* An event outside of the graph, when backward alone is captured: launches record it. With the
 * exchange it is one of the graph, for the strategy's part of that. */
static dpb_status finish_piece(const struct program *p, const struct piece *piece, enum way way,
                               const struct dpb_hooks *hooks)
{
    struct dpb_event *event = way == CAPTURED_EXCHANGED ? piece->captured : piece->final;
    const struct cuda_event *made = cuda_host->event->native(event, &cuda_events);
    const unsigned flags = way == CAPTURED ? cudaEventRecordExternal : cudaEventRecordDefault;
    CUDA_TRY(cudaEventRecordWithFlags(made->native, p->device->stream, flags));
    return way == CAPTURED_EXCHANGED ? hooks->final(hooks->context, piece->end, event) : DPB_OK;
}

/* The main stream waits for the strategy's part of the capture. */
static dpb_status join_exchange(const struct program *p, const struct dpb_hooks *hooks)
{
    struct dpb_event *event = NULL;
    DPB_TRY(cuda_capture_mark(p));
    DPB_TRY(hooks->join(hooks->context, &event));
    CUDA_TRY(cudaSetDevice(p->device->id));
    return cuda_await(p->device->stream, event);
}

static dpb_status enqueue_backward(struct program *p, enum way way, const struct dpb_hooks *hooks)
{
    size_t piece = 0;
    DPB_TRY(cuda_account_begin(p, true));
    for (size_t i = 0; i < p->backward.n; i++) {
        DPB_TRY(run_step(p, &p->backward.steps[i]));
        DPB_TRY(cuda_account_step(p, true, i));
        if (piece < p->n_pieces && p->pieces[piece].after == i) {
            DPB_TRY(p->takes_events ? finish_piece(p, &p->pieces[piece], way, hooks)
                                    : send_piece(p, piece));
            piece++;
        }
        if (way == DONE)
            DPB_TRY(hooks->progress(hooks->context));
    }
    if (way == CAPTURED_EXCHANGED)
        return join_exchange(p, hooks);
    return p->takes_events ? DPB_OK : join(p);
}

static dpb_status enqueue(struct program *p, unsigned which, enum way way,
                          const struct dpb_hooks *hooks)
{
    return which >= BACKWARD ? enqueue_backward(p, way, hooks)
                             : enqueue_forward(p, which, way, hooks);
}

/* A graph that is under way runs to its end, and is freed then. */
static void drop_exchanged(void *program)
{
    struct program *p = program;
    if (p->graphs[BACKWARD_EXCHANGED])
        cudaGraphExecDestroy(p->graphs[BACKWARD_EXCHANGED]);
    p->graphs[BACKWARD_EXCHANGED] = NULL;
}

/* The hooks' own calls turn to queues of the same GPU. */
static dpb_status capture(struct program *p, unsigned which, const struct dpb_hooks *hooks)
{
    const struct dpb_capture handle = {.context = p, .drop = drop_exchanged};
    const bool exchanged = which == BACKWARD_EXCHANGED;
    cudaStream_t stream = p->device->stream;
    cudaGraph_t graph = NULL;
    if (exchanged)
        DPB_TRY(hooks->capture(hooks->context, &handle));
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cuda_capturing(exchanged ? p->device->behind : NULL);
    dpb_status status = enqueue(p, which, exchanged ? CAPTURED_EXCHANGED : CAPTURED, hooks);
    cuda_capturing(NULL);
    cudaError_t code = cudaStreamEndCapture(stream, &graph);
    DPB_THEN(status, cuda_check(p, NULL, "cudaStreamEndCapture", code));
    /* Queues keep their priority over passes: open_queue. */
    DPB_THEN(status, CUDA_CALL(cudaGraphInstantiate(&p->graphs[which], graph,
                                                    cudaGraphInstantiateFlagUseNodePriority)));
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

/* *replayed (may be NULL): the exchange was launched with it. */
static dpb_status launch(struct program *p, unsigned which, const struct dpb_hooks *hooks,
                         bool *replayed)
{
    if (!p->device->options.graphs || p->account || p->runs[which]++ == 0)
        return enqueue(p, which, DONE, hooks);
    if (!p->graphs[which])
        DPB_TRY(capture(p, which, hooks));
    if (which == BACKWARD_EXCHANGED) {
        DPB_TRY(hooks->replay(hooks->context));
        *replayed = true;
    }
    CUDA_TRY(cudaGraphLaunch(p->graphs[which], p->device->stream));
    if (which != BACKWARD_EXCHANGED)
        return DPB_OK;
    return CUDA_CALL(cudaEventRecord(p->device->behind, p->device->stream));
}

/* ---- waiting ------------------------------------------------------------------------------- */

static bool raised(const struct program *p, const uint32_t *flag)
{
    return atomic_load_explicit((const _Atomic uint32_t *)flag, memory_order_acquire) == p->serial;
}

/* Whether all that the stream was given is done. */
static dpb_status look_at(const struct program *p, cudaStream_t stream, const char *what,
                          bool *done)
{
    cudaError_t code = cudaStreamQuery(stream);
    *done = code == cudaSuccess;
    if (code != cudaErrorNotReady)
        return cuda_check(p, NULL, what, code);
    cudaGetLastError(); /* it is no error */
    return DPB_OK;
}

/* A failed kernel raises no flag. */
static dpb_status ask_stream(const struct program *p, const uint32_t *flag, const char *what)
{
    bool done = false;
    DPB_TRY(look_at(p, p->device->stream, what, &done));
    if (!done)
        return DPB_OK;
    if (raised(p, flag))
        return DPB_OK;
    return cuda_host->fail(DPB_FAILED, "device cuda: step %llu: %s ended without its flag",
                           (unsigned long long)p->step, what);
}

/* Lets the strategy move on, then looks at the flag for a moment: calls at every look would fill
 * the account with empty entries. */
static dpb_status look_for(const struct program *p, const uint32_t *flag,
                           const struct dpb_hooks *hooks)
{
    int64_t until_ns = cuda_host->now_ns() + LOOK_NS;
    DPB_TRY(hooks->progress(hooks->context));
    while (!raised(p, flag) && cuda_host->now_ns() < until_ns)
        ;
    return DPB_OK;
}

static dpb_status await(const struct program *p, const uint32_t *flag, const char *what,
                        const struct dpb_hooks *hooks)
{
    const struct dpb_wait wait = {.step = p->step, .purpose = what};
    int64_t begin_ns = 0;
    while (!raised(p, flag)) {
        DPB_TRY(look_for(p, flag, hooks));
        DPB_TRY(ask_stream(p, flag, what));
        if (p->followed && !cuda_host->event->poll(p->followed))
            begin_ns = 0; /* the followed event has a deadline of its own */
        DPB_TRY(cuda_host->patience(&wait, &begin_ns));
    }
    return DPB_OK;
}

/* ---- passes -------------------------------------------------------------------------------- */

static dpb_status check_pass(const struct program *p, const struct dpb_pass *pass,
                             const struct dpb_batch *batch)
{
    DPB_TRY(dpb_refuse_pass(cuda_host, "cuda", &p->args, pass, batch));
    const unsigned when = pass->training ? WHEN_TRAINING : WHEN_EVALUATION;
    if ((batch->numbers != NULL) != ((cuda_pool_passes(p) & when) != 0))
        return cuda_host->fail(
            DPB_USAGE,
            "device cuda: step %llu: the batch %s samples of a pool, the program "
            "was compiled otherwise",
            (unsigned long long)pass->step, batch->numbers ? "is" : "is not");
    return DPB_OK;
}

static dpb_status send(const struct program *p, const struct tensor *to, const void *from,
                       size_t bytes)
{
    return CUDA_CALL(
        cudaMemcpyAsync(to->data, from, bytes, cudaMemcpyHostToDevice, p->device->stream));
}

/* The words of the pass. Nobody reads those of the last such pass any more: the last forward has
 * ended. */
static dpb_status begin_pass(struct program *p, const struct dpb_pass *pass,
                             struct pass_words *words)
{
    p->step = pass->step;
    p->loss_scale = p->type == TYPE_FP16 ? pass->loss_scale : 1.0;
    *words = (struct pass_words){.step = (uint32_t)pass->step,
                                 .first_sample = pass->first_sample,
                                 .valid = pass->valid,
                                 .serial = ++p->serial,
                                 .loss_scale = (float)p->loss_scale};
    CUDA_TRY(cudaSetDevice(p->device->id));
    return send(p, p->words, words, sizeof *words);
}

/* Copies the samples through pinned memory: the driver would stage a copy from other memory itself,
 * while the host waits. A piece is copied to the device while the host copies the next one. If core
 * takes events, the copy runs beside the main stream's work. */
static dpb_status send_samples(const struct program *p, const struct dpb_batch *batch)
{
    enum { SAMPLES_PIECE = 4 << 20 };
    cudaStream_t stream = p->takes_events ? p->device->copies : p->device->stream;
    const size_t bytes = batch->n * dpb_sample_bytes(p->args.format);
    for (size_t at = 0; at < bytes; at += SAMPLES_PIECE) {
        const size_t n = bytes - at < SAMPLES_PIECE ? bytes - at : SAMPLES_PIECE;
        char *pinned = (char *)p->pinned_samples + at;
        memcpy(pinned, (const char *)batch->samples + at, n);
        CUDA_TRY(cudaMemcpyAsync((char *)p->samples->data + at, pinned, n, cudaMemcpyHostToDevice,
                                 stream));
    }
    return p->takes_events ? join(p) : DPB_OK;
}

/* Marks of training steps alone; a step has several forwards where it has micro-batches. */
static dpb_status mark_forward(struct program *p, const struct dpb_pass *pass)
{
    if (!p->times || !pass->training)
        return DPB_OK;
    bool first = !cuda_times_run(p->times) || p->timed_step != pass->step;
    p->timed_step = pass->step;
    return cuda_mark(p, MARK_FORWARD, first);
}

static dpb_status mark(const struct program *p, enum mark mark)
{
    return p->times && cuda_times_run(p->times) ? cuda_mark(p, mark, false) : DPB_OK;
}

/* Labels, and the samples or, of the pool, which they are. */
static dpb_status send_batch(const struct program *p, const struct dpb_batch *batch)
{
    const size_t n = batch->n, labels = cuda_labels(p) * sizeof *p->pinned_labels;
    memcpy(p->pinned_labels, batch->labels, labels);
    DPB_TRY(send(p, p->labels, p->pinned_labels, labels));
    if (!batch->numbers)
        return send_samples(p, batch);
    memcpy(p->pinned_numbers, batch->numbers, n * sizeof *p->pinned_numbers);
    return send(p, p->numbers, p->pinned_numbers, n * sizeof *p->pinned_numbers);
}

dpb_status cuda_forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                        const struct dpb_hooks *hooks, struct dpb_outcome *outcome)
{
    struct program *p = program;
    unsigned when = pass->training ? WHEN_TRAINING : WHEN_EVALUATION;
    DPB_TRY(check_pass(p, pass, batch));
    p->trained = false;
    DPB_TRY(begin_pass(p, pass, &p->control->words[0]));
    DPB_TRY(send_batch(p, batch));
    if (pass->weights_changed || !p->uploaded) {
        p->uploaded = false;
        DPB_TRY(cuda_upload(p, &p->weights));
        when |= WHEN_REPACKING;
    }
    if (!pass->training)
        DPB_TRY(cuda_upload(p, &p->state));
    DPB_TRY(mark_forward(p, pass));
    DPB_TRY(launch(p, when, hooks, NULL));
    if (pass->training)
        DPB_TRY(mark(p, MARK_IDLE));
    DPB_TRY(await(p, &p->control->forward_done, "forward", hooks));
    DPB_TRY(cuda_account_settle(p, pass->training));
    p->followed = NULL;
    if (p->times && pass->training)
        DPB_TRY(cuda_times_settle(p));
    if (pass->training)
        cuda_downloaded(&p->statistics, 0, p->graph->n_state_elements);
    p->uploaded = true;
    p->trained = pass->training;
    outcome->loss = p->control->outcome.loss;
    outcome->correct = p->control->outcome.correct;
    outcome->in_top5 = p->control->outcome.in_top5;
    return DPB_OK;
}

dpb_status cuda_backward(void *program, const struct dpb_pass *pass, const struct dpb_hooks *hooks)
{
    struct program *p = program;
    bool replayed = false;
    if (!p->trained)
        return cuda_host->fail(DPB_USAGE, "device cuda: backward without a training pass forward");
    DPB_TRY(begin_pass(p, pass, &p->control->words[1]));
    DPB_TRY(mark(p, MARK_BACKWARD));
    DPB_TRY(launch(p, pass->captures ? BACKWARD_EXCHANGED : BACKWARD, hooks, &replayed));
    DPB_TRY(mark(p, replayed ? MARK_CAPTURED : MARK_EXCHANGE));
    for (size_t i = 0; i < p->n_pieces && !replayed; i++) {
        const struct piece *piece = &p->pieces[i];
        if (p->takes_events) {
            DPB_TRY(hooks->final(hooks->context, piece->end, piece->final));
            continue;
        }
        DPB_TRY(await(p, &p->control->piece_done[i], "backward", hooks));
        cuda_downloaded(&p->gradients, piece->begin, piece->end);
        DPB_TRY(hooks->final(hooks->context, piece->end, NULL));
    }
    return DPB_OK;
}

dpb_status cuda_follow(void *program, struct dpb_event *event)
{
    struct program *p = program;
    CUDA_TRY(cudaSetDevice(p->device->id));
    if (p->times && cuda_times_idle(p->times)) /* it has followed another already */
        DPB_TRY(cuda_mark(p, MARK_EXCHANGE, false));
    DPB_TRY(cuda_await(p->device->stream, event));
    p->followed = event;
    return mark(p, MARK_IDLE);
}

/* For times, the last step ends here. */
dpb_status cuda_drain(void *program)
{
    struct program *p = program;
    const cudaStream_t streams[] = {p->device->stream, p->device->copies};
    const struct dpb_wait wait = {.step = p->step, .purpose = "the device's work"};
    int64_t begin_ns = 0;
    bool ends = p->times && cuda_times_run(p->times);
    CUDA_TRY(cudaSetDevice(p->device->id));
    if (ends)
        DPB_TRY(cuda_mark(p, MARK_IDLE, true));
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        for (bool done = false; !done;) {
            DPB_TRY(look_at(p, streams[i], "the work of the last step", &done));
            DPB_TRY(cuda_host->patience(&wait, &begin_ns));
        }
    }
    p->followed = NULL;
    return ends ? cuda_times_settle(p) : DPB_OK;
}

dpb_status cuda_finite(void *program, bool *finite)
{
    const struct program *p = program;
    if (p->type != TYPE_FP16)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: gradients are looked at in fp16 alone");
    *finite = !raised(p, &p->control->infinite);
    return DPB_OK;
}
