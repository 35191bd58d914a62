-- @view string: manifold_documents.[order-summary]
-- @table string: manifold_documents.[order-summary.12] 
select case when object_id(@view) is null then -1 when charindex(@table collate Latin1_General_100_BIN2, object_definition(object_id(@view))) > 0 then 1 else 0 end;
