// The reader of linked kernels, over ELF files that this test writes.
#include "life/kernels.hpp"

#include <elf.h>

#include <cstring>
#include <vector>

#include "check.hpp"

using pto::a2a3::LinkedCode;
using pto::a2a3::read_linked_code;

namespace {

struct Section {
  std::string name;
  uint32_t type = SHT_PROGBITS;
  uint64_t flags = SHF_ALLOC;
  std::string bytes;
  uint32_t link = 0, info = 0;
  uint64_t entry_bytes = 0;
};

template <class Value>
std::string bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Section 1 is the code of two functions, 2 the symbols, 3 their names, the last one the names of
// the sections.
struct Elf {
  Elf() {
    Elf64_Sym helper = {}, entry = {};
    helper.st_name = 1;
    entry.st_name = 8;
    helper.st_shndx = entry.st_shndx = 1;
    entry.st_value = 8;
    sections = {
        {"", SHT_NULL, 0, ""},
        {".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, "code----entry---"},
        {".symtab", SHT_SYMTAB, 0, bytes_of(Elf64_Sym{}) + bytes_of(helper) + bytes_of(entry), 3},
        {".strtab", SHT_STRTAB, 0, std::string("\0helper\0kernel_entry\0", 21)},
    };
  }

  std::string write() const {
    std::vector<Section> all = sections;
    all.push_back({".shstrtab", SHT_STRTAB, 0, ""});
    std::string names;
    std::vector<uint32_t> offsets;
    for (const Section& one : all) {
      offsets.push_back(static_cast<uint32_t>(names.size()));
      names += one.name + '\0';
    }
    all.back().bytes = names;
    std::string content, table;
    for (size_t i = 0; i < all.size(); ++i) {
      Elf64_Shdr header = {};
      header.sh_name = offsets[i];
      header.sh_type = all[i].type;
      header.sh_flags = all[i].flags;
      header.sh_offset = sizeof(Elf64_Ehdr) + content.size();
      header.sh_size = all[i].bytes.size();
      header.sh_link = all[i].link;
      header.sh_info = all[i].info;
      header.sh_entsize = all[i].entry_bytes;
      header.sh_addralign = 256;
      content += all[i].bytes;
      table += bytes_of(header);
    }
    Elf64_Ehdr head = {};
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_type = type;
    head.e_shoff = sizeof head + content.size();
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = static_cast<uint16_t>(all.size());
    head.e_shstrndx = static_cast<uint16_t>(all.size() - 1);
    return bytes_of(head) + content + table;
  }

  uint16_t type = ET_EXEC;
  std::vector<Section> sections;
};

std::string refusal(const std::string& file) {
  LinkedCode code;
  pto_error error = {};
  CHECK_EQUAL(read_linked_code(file, "add", "kernel_entry", &code, &error), PTO_ERROR_LOAD);
  CHECK_EQUAL(code.bytes.size(), size_t{0});
  return error.message;
}

TEST(the_code_and_its_entry_are_found) {
  Elf elf;
  elf.sections.push_back({".note.gnu.build-id", SHT_NOTE, SHF_ALLOC, "note"});
  elf.sections.push_back({".rela.debug_info", SHT_RELA, 0, std::string(24, 'r'), 2, 5, 24});
  // Headers of the vendor make these; no code reads them.
  elf.sections.push_back({".bl.uninit.mask", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, "mask"});
  elf.sections.push_back({".bl.uninit.local", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, "local"});
  const std::string file = elf.write();
  LinkedCode code;
  pto_error error = {};
  CHECK_EQUAL(read_linked_code(file, "add", "kernel_entry", &code, &error), PTO_OK);
  CHECK_EQUAL(std::string(code.bytes), std::string("code----entry---"));
  CHECK_EQUAL(code.entry, uint64_t{8});
  CHECK_EQUAL(code.alignment, uint64_t{256});
  CHECK(!pto::a2a3::is_shared_library(file));
  elf.type = ET_DYN;
  CHECK(pto::a2a3::is_shared_library(elf.write()));
}

TEST(relocations_that_are_not_applied_are_refused) {
  for (const uint32_t type : {SHT_RELA, SHT_REL}) {
    Elf elf;
    elf.type = ET_REL;
    elf.sections.push_back({".rela.text", type, 0, std::string(48, 'r'), 2, 1, 24});
    const std::string message = refusal(elf.write());
    CHECK_CONTAINS(message,
                   "kernel add has 2 relocations that are not applied (section .rela.text");
    CHECK_CONTAINS(message, "link it with the recipe of the backend");
  }
}

TEST(data_and_code_that_would_not_be_uploaded_are_refused) {
  Elf elf;
  elf.sections.push_back({".rodata", SHT_PROGBITS, SHF_ALLOC, "12345"});
  CHECK_CONTAINS(refusal(elf.write()), "5 bytes of data in section .rodata");
  elf.sections.back() = {".bl.init", SHT_PROGBITS, SHF_ALLOC, "1234"};
  CHECK_CONTAINS(refusal(elf.write()), "4 bytes of data in section .bl.init");
  elf.sections.back() = {".text.cold", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, "cold"};
  CHECK_CONTAINS(refusal(elf.write()), "code in section .text.cold, and only one section .text");
  elf.sections.pop_back();
  elf.sections[1].bytes.clear();
  CHECK_CONTAINS(refusal(elf.write()), "has no code");
}

TEST(a_file_without_the_entry_is_refused) {
  Elf elf;
  elf.sections[3].bytes[8] = 'K';
  CHECK_CONTAINS(refusal(elf.write()), "kernel add has no function kernel_entry");
}

// Each shorter file and each changed byte of the tables is refused or read without a fault.
TEST(a_damaged_file_is_no_fault) {
  const std::string file = Elf().write();
  for (size_t length = 0; length < file.size(); ++length) refusal(file.substr(0, length));
  for (size_t at = 0; at < file.size(); ++at) {
    for (const char value : {'\0', '\1', '\xFF'}) {
      std::string damaged = file;
      damaged[at] = value;
      LinkedCode code;
      pto_error error = {};
      if (read_linked_code(damaged, "add", "kernel_entry", &code, &error) != PTO_OK) continue;
      CHECK(code.bytes.data() >= damaged.data() && code.entry < code.bytes.size());
      CHECK(code.bytes.end() <= damaged.data() + damaged.size());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
