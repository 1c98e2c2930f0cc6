"""The RocketMQ store itself, running (:class:`~mqstore.store.store.Store`) and looked at from outside
(:class:`~mqstore.store.view.StoreView`).

The way of a message: ``store.put`` -> ``writer`` (checks, rewriting) -> ``commit_log`` (append under the lock) ->
``flush`` (when is it safe) -> ``dispatch`` (queue units and index entries) -> ``reading`` (get, query, look up).
"""
