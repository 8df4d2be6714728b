/*
 * graph_text.cc - a plan of the stand-in's graph API as text, and back: its engine, and all
 * descriptors that its graph refers to, each behind those that it refers to itself.
 */
#include <sstream>

#include "graph_parts.h"

namespace graphs
{
namespace
{
const char HEAD[] = "stand-in plan";

typedef std::map<const descriptor *, int> numbers;

void write(const descriptor &d, numbers &known, std::ostream &out)
{
    std::ostringstream line;
    line << (int)d.type;
    for (const auto &attribute : d.attributes) {
        const auto name = (cudnnBackendAttributeName_t)attribute.first;
        if (type_of(d.type, name) == CUDNN_TYPE_HANDLE)
            continue;
        std::vector<int> bytes(attribute.second.begin(), attribute.second.end());
        if (type_of(d.type, name) == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            bytes.clear();
            for (const descriptor *other : d.all<const descriptor *>(name)) {
                if (!known.count(other))
                    write(*other, known, out);
                bytes.push_back(known.at(other));
            }
        }
        line << ' ' << (int)name << ' ' << bytes.size();
        for (int byte : bytes)
            line << ' ' << byte;
    }
    out << line.str() << '\n';
    const int number = (int)known.size();
    known[&d] = number;
}

bool read(std::istream &line, cudnnHandle_t handle, std::vector<std::unique_ptr<descriptor>> &all)
{
    std::unique_ptr<descriptor> d(new descriptor());
    int type, name;
    size_t n;
    if (!(line >> type))
        return false;
    d->type = (cudnnBackendDescriptorType_t)type;
    while (line >> name >> n) {
        const auto attribute = (cudnnBackendAttributeName_t)name;
        std::vector<unsigned char> &raw = d->attributes[name];
        for (int value; n > 0 && line >> value; n--) {
            raw.push_back((unsigned char)value);
            if (type_of(d->type, attribute) != CUDNN_TYPE_BACKEND_DESCRIPTOR)
                continue;
            if (value < 0 || (size_t)value >= all.size())
                return false;
            const descriptor *other = all[(size_t)value].get();
            raw.resize(raw.size() - 1 + sizeof other);
            memcpy(&raw[raw.size() - sizeof other], &other, sizeof other);
        }
        if (n > 0)
            return false;
    }
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
        unsigned char *raw = reinterpret_cast<unsigned char *>(&handle);
        d->attributes[CUDNN_ATTR_OPERATIONGRAPH_HANDLE].assign(raw, raw + sizeof handle);
    }
    if (!has_all(*d) || check(*d) != CUDNN_STATUS_SUCCESS)
        return false;
    d->final = true;
    all.push_back(std::move(d));
    return true;
}
} // namespace

std::string text_of(const descriptor &plan)
{
    std::ostringstream out;
    numbers known;
    out << HEAD << ' ' << plan.engine << '\n';
    write(*plan.graph, known, out);
    return out.str();
}

bool take_text(descriptor &plan, const std::string &text)
{
    std::istringstream all(text);
    std::string line;
    const size_t head = sizeof HEAD - 1;
    if (!std::getline(all, line) || line.compare(0, head, HEAD) != 0)
        return false;
    plan.engine = atoi(line.c_str() + head);
    while (std::getline(all, line)) {
        std::istringstream one(line);
        if (!read(one, plan.get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), plan.owned))
            return false;
    }
    plan.graph = plan.owned.empty() ? nullptr : plan.owned.back().get();
    return plan.graph && plan.graph->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
           plan.engine >= 0 && plan.engine < ENGINES;
}
} // namespace graphs
