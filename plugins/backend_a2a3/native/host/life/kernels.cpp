#include "life/kernels.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "error.hpp"

namespace pto::a2a3 {

namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> starts) {
  for (const std::string_view start : starts) {
    if (name.substr(0, start.size()) == start) return true;
  }
  return false;
}

// The tables of one file. Everything that the file states is checked against its size.
class File {
 public:
  File(std::string_view bytes, const char* kernel) : bytes_(bytes), kernel_(kernel) {}

  bool open() {
    if (!read(0, &header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return false;
    if (header_.e_ident[EI_CLASS] != ELFCLASS64) return false;
    if (header_.e_ident[EI_DATA] != ELFDATA2LSB) return false;
    return section(header_.e_shstrndx, &names_);
  }
  uint16_t type() const { return header_.e_type; }

  // Finds the section with code. The core reads no other section.
  pto_status find_code(Elf64_Shdr* code, uint16_t* index, pto_error* error) const {
    for (uint16_t i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr one;
      if (!section(i, &one)) return cut_off(error);
      if ((one.sh_flags & SHF_ALLOC) == 0 || one.sh_size == 0) continue;
      const std::string name = name_of(one);
      // Headers of the vendor make sections .bl.uninit.*, which no code reads.
      if (starts_with_any(name, {".note", ".eh_frame", ".ascend", ".bl.uninit."})) continue;
      if ((one.sh_flags & SHF_EXECINSTR) == 0) {
        return fail(error, PTO_ERROR_LOAD,
                    "kernel %s has %llu bytes of data in section %s, and only code is uploaded to "
                    "a card; use no global, static or constant arrays in the kernel",
                    kernel_, static_cast<unsigned long long>(one.sh_size), name.c_str());
      }
      if (name != ".text" || *index != 0) {
        return fail(error, PTO_ERROR_LOAD,
                    "kernel %s has code in section %s, and only one section .text is uploaded to a "
                    "card; link it with the recipe of the backend",
                    kernel_, name.c_str());
      }
      *code = one;
      *index = i;
    }
    if (*index != 0) return PTO_OK;
    return fail(error, PTO_ERROR_LOAD, "the file of kernel %s has no code", kernel_);
  }

  pto_status check_relocations(uint16_t code, pto_error* error) const {
    for (uint16_t i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr one;
      if (!section(i, &one)) return cut_off(error);
      const bool is_list = one.sh_type == SHT_RELA || one.sh_type == SHT_REL;
      const bool is_of_code = one.sh_info == code || (one.sh_flags & SHF_ALLOC) != 0;
      if (!is_list || !is_of_code || one.sh_size == 0 || one.sh_entsize == 0) continue;
      return fail(error, PTO_ERROR_LOAD,
                  "kernel %s has %llu relocations that are not applied (section %s), so its code "
                  "would use wrong addresses; link it with the recipe of the backend",
                  kernel_, static_cast<unsigned long long>(one.sh_size / one.sh_entsize),
                  name_of(one).c_str());
    }
    return PTO_OK;
  }

  // Finds the offset of a function in the section of the code.
  pto_status find_entry(const Elf64_Shdr& code, uint16_t index, std::string_view entry,
                        uint64_t* offset, pto_error* error) const {
    for (uint16_t i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr table, names;
      if (!section(i, &table)) return cut_off(error);
      if (table.sh_type != SHT_SYMTAB) continue;
      if (!section(table.sh_link, &names)) return cut_off(error);
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        if (!read(table.sh_offset + at, &symbol)) return cut_off(error);
        if (symbol.st_shndx != index || text(names, symbol.st_name) != entry) continue;
        *offset = symbol.st_value - code.sh_addr;
        if (*offset < code.sh_size) return PTO_OK;
      }
    }
    return fail(error, PTO_ERROR_LOAD,
                "kernel %s has no function %.*s in its code; define  extern \"C\" __aicore__ void "
                "%.*s(__gm__ int64_t* args)",
                kernel_, static_cast<int>(entry.size()), entry.data(),
                static_cast<int>(entry.size()), entry.data());
  }

  pto_status cut_off(pto_error* error) const {
    return fail(error, PTO_ERROR_LOAD,
                "the file of kernel %s is not a complete ELF file of 64 bits; build it again",
                kernel_);
  }

 private:
  template <class Value>
  bool read(uint64_t offset, Value* value) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof *value) return false;
    std::memcpy(value, bytes_.data() + offset, sizeof *value);
    return true;
  }

  // Reads a section header. Its content lies in the file.
  bool section(uint32_t index, Elf64_Shdr* header) const {
    if (index >= header_.e_shnum || header_.e_shentsize != sizeof *header) return false;
    if (!read(header_.e_shoff + uint64_t{index} * sizeof *header, header)) return false;
    if (header->sh_type == SHT_NOBITS || header->sh_type == SHT_NULL) return true;
    return header->sh_offset <= bytes_.size() &&
           bytes_.size() - header->sh_offset >= header->sh_size;
  }

  std::string_view text(const Elf64_Shdr& names, uint32_t offset) const {
    if (offset >= names.sh_size) return {};
    const std::string_view rest = bytes_.substr(names.sh_offset, names.sh_size).substr(offset);
    return rest.substr(0, rest.find('\0'));
  }
  std::string name_of(const Elf64_Shdr& one) const {
    return std::string(text(names_, one.sh_name));
  }

  const std::string_view bytes_;
  const char* const kernel_;
  Elf64_Ehdr header_ = {};
  Elf64_Shdr names_ = {};
};

}  // namespace

bool is_shared_library(std::string_view file) {
  File elf(file, "");
  return elf.open() && elf.type() == ET_DYN;
}

pto_status read_linked_code(std::string_view file, const char* kernel, std::string_view entry,
                            LinkedCode* code, pto_error* error) {
  File elf(file, kernel);
  if (!elf.open()) return elf.cut_off(error);
  Elf64_Shdr section = {};
  uint16_t index = 0;
  uint64_t offset = 0;
  pto_status status = elf.find_code(&section, &index, error);
  if (status == PTO_OK) status = elf.check_relocations(index, error);
  if (status == PTO_OK) status = elf.find_entry(section, index, entry, &offset, error);
  if (status != PTO_OK) return status;
  *code = {file.substr(section.sh_offset, section.sh_size), section.sh_addralign, offset};
  return PTO_OK;
}

namespace {

constexpr const char* kEntry = "kernel_entry";
constexpr uint64_t kPageBytes = 4096;

}  // namespace

pto_status Kernels::load(const pto_kernel_source& source, uint64_t* address, pto_error* error) {
  if (source.path == nullptr) {
    return fail(error, PTO_ERROR_UNSUPPORTED,
                "kernel %s is a Python function, which cannot run on a card; use a C++ kernel",
                source.name);
  }
  std::ifstream stream(source.path, std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(stream), {});
  if (file.empty()) {
    return fail(error, PTO_ERROR_LOAD, "the file %s cannot be read or is empty", source.path);
  }
  if (!is_shared_library(file)) return upload(file, source, address, error);
  if (!card_.session().driver().is_fake()) {
    return fail(error, PTO_ERROR_LOAD,
                "kernel %s is a shared library, which a core cannot run; build it with the recipe "
                "of the backend",
                source.name);
  }
  uint64_t handle = 0;
  pto_status status = aicpu_.load(PTO_A2A3_KERNEL, file, source.symbol, &handle, address, error);
  if (status != PTO_OK) return status;
  const bool prints = (aicpu_.answer().capabilities & PTO_A2A3_PRINTS) != 0;
  if (prints) status = aicpu_.texts().add(*address, source.name, error);
  if (status == PTO_OK) {
    kernels_[*address] = {handle, source.name, source.path};
  } else {
    aicpu_.unload(handle, nullptr);
  }
  return status;
}

pto_status Kernels::upload(const std::string& file, const pto_kernel_source& source,
                           uint64_t* address, pto_error* error) {
  LinkedCode code;
  const char* entry = source.symbol != nullptr ? source.symbol : kEntry;
  pto_status status = read_linked_code(file, source.name, entry, &code, error);
  if (status != PTO_OK) return status;
  CardMemory& memory = card_.memory();
  const uint64_t alignment = std::max(code.alignment, kPageBytes);
  const uint64_t pages = (code.bytes.size() + kPageBytes - 1) / kPageBytes;
  uint64_t block = 0;
  status = memory.allocate(pages * kPageBytes + alignment, &block, error);
  if (status != PTO_OK) return status;
  const uint64_t start = (block + alignment - 1) / alignment * alignment;
  status = memory.copy_in(start, code.bytes.data(), code.bytes.size(), error);
  if (status != PTO_OK) {
    memory.free(block, nullptr);
    return status;
  }
  *address = start + code.entry;
  kernels_[*address] = {0, source.name, source.path};
  blocks_.push_back(block);
  has_new_code_ = true;
  return PTO_OK;
}

pto_status Kernels::unload(uint64_t address) {
  const auto found = kernels_.find(address);
  if (found == kernels_.end()) return PTO_ERROR_USAGE;
  const uint64_t library = found->second.library;
  kernels_.erase(found);
  return library != 0 ? aicpu_.unload(library, nullptr) : PTO_OK;
}

pto_status Kernels::prepare_run(pto_error* error) {
  if (!has_new_code_) return PTO_OK;
  const pto_status status = card_.renew_core_stream(error);
  has_new_code_ = status != PTO_OK;
  return status;
}

void Kernels::close() {
  for (const uint64_t block : blocks_) {
    if (card_.is_usable()) card_.memory().free(block, nullptr);
  }
  blocks_.clear();
  kernels_.clear();
}

}  // namespace pto::a2a3
