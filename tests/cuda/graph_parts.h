/*
 * graph_parts.h - what the files of the stand-in's graph API share: descriptors, and the
 * convolutions that are read from them.
 */
#ifndef DPB_TESTS_CUDA_GRAPH_PARTS_H
#define DPB_TESTS_CUDA_GRAPH_PARTS_H

#include <map>
#include <vector>

#include "cudnn_parts.h"

namespace graphs
{
struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final = false;
    std::map<int, std::vector<unsigned char>> attributes;
    int engine = -1;                   /* of configurations, engines and plans */
    const descriptor *graph = nullptr; /* of these: what is computed */

    template <typename T> std::vector<T> all(cudnnBackendAttributeName_t name) const
    {
        const std::vector<unsigned char> &raw = attributes.at(name);
        std::vector<T> values(raw.size() / sizeof(T));
        memcpy(values.data(), raw.data(), raw.size());
        return values;
    }
    template <typename T> T get(cudnnBackendAttributeName_t name) const
    {
        T value;
        memcpy(&value, attributes.at(name).data(), sizeof value);
        return value;
    }
    const descriptor &to(cudnnBackendAttributeName_t name) const
    {
        return *get<const descriptor *>(name);
    }
    bool has(cudnnBackendAttributeName_t name) const
    {
        return attributes.count(name) > 0;
    }
};

struct tensor {
    const descriptor *desc;
    cudnnDataType_t type;
    int64_t id, align;
    std::vector<int64_t> dims, strides; /* n, c, h, w */
    size_t count() const
    {
        return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
    }
};

enum call { FORWARD, DATA, WEIGHTS };

/* One of the three calls; x: of the side that is padded. */
struct convolution {
    call which;
    tensor x, w, y;
    std::vector<int64_t> pads, strides;
    bool adds; /* to what the result's place holds */

    int64_t groups() const
    {
        return x.dims[1] / w.dims[1];
    }
    std::vector<const tensor *> stored() const
    {
        return {&x, &w, &y};
    }
};

/* In the order of heuristic A: not deterministic; of which no plan can be made; compiled when a
 * plan is made; tensor cores; by transforms; without tensor cores. Then the fallback: likewise,
 * with more to work with. */
enum {
    RANDOM,
    BROKEN,
    COMPILED,
    TENSOR,
    ROUGH,
    PLAIN,
    ENGINES_OF_A,
    LARGE = ENGINES_OF_A,
    ENGINES
};

/* graph_checks.cc: of descriptors that have all their attributes. */
convolution read_convolution(const descriptor &graph);
/* Whether cudnnBackendFinalize takes it; a plan takes its engine and graph over. */
cudnnStatus_t check(descriptor &d);

/* graph_compute.cc: by the tensors' ids, where they lie. */
typedef std::map<int64_t, void *> places;
void compute(const convolution &c, int engine, const places &at, bool infinite);
} // namespace graphs

#endif
