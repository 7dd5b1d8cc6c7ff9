"""A classifier on pyACL, in the order of calls of the public resnet50 sample."""

import sys

import acl
import numpy as np

MALLOC_HUGE_FIRST = 0
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


def check(what: str, ret: int) -> None:
    if ret != 0:
        raise RuntimeError(f"{what} failed: {ret} {acl.get_recent_err_msg()}")


class Net:
    def __init__(self, device_id: int, model_path: str, config: str | None = None) -> None:
        self.device_id = device_id
        check("acl.init", acl.init(config) if config else acl.init())
        check("acl.rt.set_device", acl.rt.set_device(device_id))
        self.context, ret = acl.rt.create_context(device_id)
        check("acl.rt.create_context", ret)
        self.model_id, ret = acl.mdl.load_from_file(model_path)
        check("acl.mdl.load_from_file", ret)
        self.model_desc = acl.mdl.create_desc()
        check("acl.mdl.get_desc", acl.mdl.get_desc(self.model_desc, self.model_id))
        input_size = acl.mdl.get_num_inputs(self.model_desc)
        output_size = acl.mdl.get_num_outputs(self.model_desc)
        self.input_data = self._buffers(input_size, "input")
        self.output_data = self._buffers(output_size, "output")

    def _buffers(self, size: int, des: str) -> list[dict[str, int]]:
        buffers = []
        for i in range(size):
            buffer_size = getattr(acl.mdl, f"get_{des}_size_by_index")(self.model_desc, i)
            buffer, ret = acl.rt.malloc(buffer_size, MALLOC_HUGE_FIRST)
            check("acl.rt.malloc", ret)
            buffers.append({"buffer": buffer, "size": buffer_size})
        return buffers

    def _to_device(self, images: list[np.ndarray]) -> None:
        for i, image in enumerate(images):
            data = image.tobytes()
            pointer = acl.util.bytes_to_ptr(data)
            item = self.input_data[i]
            ret = acl.rt.memcpy(item["buffer"], item["size"], pointer, len(data), HOST_TO_DEVICE)
            check("acl.rt.memcpy", ret)

    def _dataset(self, items: list[dict[str, int]]) -> int:
        dataset = acl.mdl.create_dataset()
        for item in items:
            data = acl.create_data_buffer(item["buffer"], item["size"])
            dataset, ret = acl.mdl.add_dataset_buffer(dataset, data)
            check("acl.mdl.add_dataset_buffer", ret)
        return dataset

    def _destroy(self, dataset: int) -> None:
        for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
            data = acl.mdl.get_dataset_buffer(dataset, i)
            check("acl.destroy_data_buffer", acl.destroy_data_buffer(data))
        check("acl.mdl.destroy_dataset", acl.mdl.destroy_dataset(dataset))

    def _to_host(self) -> list[np.ndarray]:
        results = []
        for i, item in enumerate(self.output_data):
            host, ret = acl.rt.malloc_host(item["size"])
            check("acl.rt.malloc_host", ret)
            ret = acl.rt.memcpy(host, item["size"], item["buffer"], item["size"], DEVICE_TO_HOST)
            check("acl.rt.memcpy", ret)
            dims, ret = acl.mdl.get_cur_output_dims(self.model_desc, i)
            check("acl.mdl.get_cur_output_dims", ret)
            data = acl.util.ptr_to_bytes(host, item["size"])
            results.append(np.frombuffer(data, dtype=np.float32).reshape(tuple(dims["dims"])))
            check("acl.rt.free_host", acl.rt.free_host(host))
        return results

    def run(self, images: list[np.ndarray]) -> list[np.ndarray]:
        self._to_device(images)
        load_input, load_output = self._dataset(self.input_data), self._dataset(self.output_data)
        check("acl.mdl.execute", acl.mdl.execute(self.model_id, load_input, load_output))
        result = self._to_host()
        self._destroy(load_input)
        self._destroy(load_output)
        return result

    def close(self) -> None:
        check("acl.mdl.unload", acl.mdl.unload(self.model_id))
        check("acl.mdl.destroy_desc", acl.mdl.destroy_desc(self.model_desc))
        for item in self.input_data + self.output_data:
            check("acl.rt.free", acl.rt.free(item["buffer"]))
        check("acl.rt.destroy_context", acl.rt.destroy_context(self.context))
        check("acl.rt.reset_device", acl.rt.reset_device(self.device_id))
        check("acl.finalize", acl.finalize())


def main(model: str, image: str, result: str, config: str | None = None) -> None:
    net = Net(0, model, config)
    outputs = net.run([np.load(image)])
    net.close()
    np.save(result, outputs[0])


main(*sys.argv[1:])
