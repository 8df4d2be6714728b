/*
 * graph_parts.h - what the files of the stand-in's graph API share: descriptors, and the graphs
 * that there are, read from them.
 */
#ifndef DPB_TESTS_CUDA_GRAPH_PARTS_H
#define DPB_TESTS_CUDA_GRAPH_PARTS_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_parts.h"

namespace graphs
{
struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final = false;
    std::map<int, std::vector<unsigned char>> attributes;
    int engine = -1;                                /* of configurations, engines and plans */
    const descriptor *graph = nullptr;              /* of these: what is computed */
    std::vector<std::unique_ptr<descriptor>> owned; /* of a plan made of text: its graph's */

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
    bool is_virtual;
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

/* A convolution forward, and the sums of its result and of its squares. */
struct pattern {
    convolution conv;
    tensor square, sum, squares;

    std::vector<const tensor *> stored() const
    {
        return {&conv.x, &conv.w, &conv.y, &sum, &squares};
    }
};

/* A convolution by its input, dx, whose result, or `joined`, its sum with the shortcut's gradient,
 * is masked by y and stored as dz; the sums of dz, and of dz times x less the mean times the
 * inverse. */
struct gradient {
    convolution conv;
    std::vector<tensor> shortcut, joined; /* of each one, or none */
    tensor y, dz, x, mean, centered, inverse, normal, product, sum, products;

    static std::vector<const tensor *> with(std::vector<const tensor *> some,
                                            const std::vector<tensor> &more)
    {
        for (const tensor &t : more)
            some.push_back(&t);
        return some;
    }
    std::vector<const tensor *> virtuals() const
    {
        return with({&conv.x, &centered, &normal, &product}, joined);
    }
    std::vector<const tensor *> large() const
    {
        return with(with({&y, &dz, &x, &centered, &normal, &product}, joined), shortcut);
    }
    std::vector<const tensor *> channels() const
    {
        return {&mean, &inverse, &sum, &products};
    }
    std::vector<const tensor *> stored() const
    {
        return with({&conv.y, &conv.w, &y, &dz, &x, &mean, &inverse, &sum, &products}, shortcut);
    }
};

/* In the order of heuristic A: not deterministic; of which no plan can be made; compiled when a
 * plan is made, of a convolution alone; tensor cores; adding in the narrow type; without tensor
 * cores. Then the fallback: likewise, with more to work with. */
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
enum kind { ALONE, SUMS, GRADIENT };
kind kind_of(const descriptor &graph);
convolution read_convolution(const descriptor &graph);
pattern read_pattern(const descriptor &graph);
gradient read_gradient(const descriptor &graph);
/* Whether cudnnBackendFinalize takes it; a plan takes its engine and graph over. */
cudnnStatus_t check(descriptor &d);

/* graphs.cc: an attribute's type; whether all attributes are there that have to be. */
cudnnBackendAttributeType_t type_of(cudnnBackendDescriptorType_t of,
                                    cudnnBackendAttributeName_t name);
bool has_all(const descriptor &d);

/* graph_text.cc: the text of a plan; a plan with nothing but a handle takes it, or false. */
std::string text_of(const descriptor &plan);
bool take_text(descriptor &plan, const std::string &text);

/* graph_compute.cc: by the tensors' ids, where they lie. The sums are of what is stored. */
typedef std::map<int64_t, void *> places;
void compute(const convolution &c, int engine, const places &at, bool infinite);
void compute(const pattern &p, int engine, const places &at);
void compute(const gradient &g, int engine, const places &at);
} // namespace graphs

#endif
