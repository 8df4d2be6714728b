/*
 * capture.h - a step's exchange captured with the device's backward as one graph, and launched with
 * it from then on. For strategies whose plan says `captures`.
 *
 * For strategies on GPUs. A first plugin does not need this header.
 *
 * Between the begin and the end of a capture queues keep their work in a graph instead of doing it.
 * The device then launches the graph as a whole, any number of times. During a capture nothing may
 * be polled or waited for. A launch reads anew only memory of the device and pinned memory.
 *
 * The steps of a communicator are
 *
 *     begin -> capture -> ready(0) ... ready(n - 1) -> end -> replay      for the first
 *     begin -> replay                                                     after it
 *
 *     capture   In place of progress. Until `end` returns, `ready` gives events of the capture, and
 *               *done is an event of the capture behind all work.
 *     replay    The graph is launched next, and its last launch is done. Writes the step's values
 *               to the memory where the graph reads them. *done is that of `end`, for work behind
 *               the launch.
 */
#ifndef DPBENCH_CAPTURE_H
#define DPBENCH_CAPTURE_H

struct dpb_capture {
    void *context;
    /* Destroys the graph, whether its work is done or not. If you put a library's work into the
     * graph, call this before you close or abort that library's object. Does not wait. A second
     * call is harmless. */
    void (*drop)(void *context);
};

#endif
