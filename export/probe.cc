// Loads a SavedModel as TensorFlow Serving does, and runs one signature.
//
//   probe FOLDER SIGNATURE DTYPE ROWS,COLUMNS,... IMAGES OUT
//
// IMAGES holds the bytes of the input `images`. For each output two files are
// written, OUT/NAME.bin with its bytes and OUT/NAME.txt with type and shape.

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"

namespace tensorflow {
// As the server does, unless it is told otherwise. Its header is not shipped.
void DisableXlaCompilation();
}  // namespace tensorflow

namespace {

using tensorflow::Tensor;

Tensor ReadImages(int dtype, const std::string& shape, const char* path) {
  tensorflow::TensorShape sizes;
  std::stringstream numbers(shape);
  for (std::string size; std::getline(numbers, size, ',');) {
    sizes.AddDim(std::stoll(size));
  }
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  Tensor images(static_cast<tensorflow::DataType>(dtype), sizes);
  if (bytes.size() != images.tensor_data().size()) {
    std::cerr << path << " does not fit its shape\n";
    std::exit(1);
  }
  std::memcpy(images.data(), bytes.data(), bytes.size());
  return images;
}

void Write(const Tensor& tensor, const std::string& path) {
  const auto bytes = tensor.tensor_data();
  std::ofstream(path + ".bin", std::ios::binary)
      .write(bytes.data(), bytes.size());
  std::ofstream form(path + ".txt");
  form << static_cast<int>(tensor.dtype());
  for (const auto& dim : tensor.shape()) form << ' ' << dim.size;
  form << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "six arguments are needed\n";
    return 2;
  }
  tensorflow::DisableXlaCompilation();
  tensorflow::SavedModelBundle bundle;
  auto status = tensorflow::LoadSavedModel(
      tensorflow::SessionOptions(), tensorflow::RunOptions(), argv[1],
      {"serve"}, &bundle);
  if (!status.ok()) {
    std::cerr << status.ToString() << '\n';
    return 1;
  }
  const auto& signature = bundle.GetSignatures().at(argv[2]);
  const Tensor images = ReadImages(std::stoi(argv[3]), argv[4], argv[5]);
  std::vector<std::string> names, tensors;
  for (const auto& output : signature.outputs()) {
    names.push_back(output.first);
    tensors.push_back(output.second.name());
  }
  std::vector<Tensor> outputs;
  status = bundle.GetSession()->Run(
      {{signature.inputs().at("images").name(), images}}, tensors, {},
      &outputs);
  if (!status.ok()) {
    std::cerr << status.ToString() << '\n';
    return 1;
  }
  for (size_t k = 0; k < names.size(); ++k) {
    Write(outputs[k], std::string(argv[6]) + "/" + names[k]);
  }
}
